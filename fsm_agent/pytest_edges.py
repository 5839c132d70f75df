"""A pytest plugin that tells which edges of which machines no test has walked: ``pytest -p fsm_agent.pytest_edges --edges``.

``--edges-require MACHINE`` (``module:attribute``, or a name that ``fsm-agent diagram`` knows) fails the session while an edge of that
machine is not walked. Works with pytest-xdist: each worker tells what it walked.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from fsm_agent.cli.machines import NAMES, machine_of
from fsm_agent.core.errors import FsmAgentError
from fsm_agent.edges import Edges, recorded_edges


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    group = parser.getgroup("fsm-agent")
    group.addoption("--edges", action="store_true", help="say which edges of state machines no test has walked")
    group.addoption(
        "--edges-require",
        action="append",
        default=[],
        metavar="MACHINE",
        help="fail while an edge of this machine (module:attribute, or a name such as agent) is not walked; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, where it was asked for; an unknown machine ends the session at once."""
    required = config.getoption("edges_require")
    if not (required or config.getoption("edges")):
        return
    try:
        tables = {name: machine_of(name, *NAMES).table for name in required}
    except FsmAgentError as error:
        raise pytest.UsageError(f"--edges-require: {error}") from None
    config.pluginmanager.register(_Recorder(config, tables), "fsm_agent_edges")


class _Recorder:
    """One session's counting; in a worker it hands over what it counted, elsewhere it reports."""

    def __init__(self, config: pytest.Config, required: dict[str, Any]) -> None:
        self.required = required
        self._stack = ExitStack()
        self.edges: Edges = self._stack.enter_context(recorded_edges())
        config.add_cleanup(self._stack.close)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker is done: take what it counted."""
        self.edges.merge(getattr(node, "workeroutput", {}).get("fsm_agent_edges", []))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand over what was counted, or fail where a required edge is missing."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["fsm_agent_edges"] = self.edges.as_json()
        elif exitstatus == pytest.ExitCode.OK and any(self.edges.missing(table) for table in self.required.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The report: what was seen, and of what is required all that is missing."""
        terminalreporter.section("edges of state machines")
        for line in self.edges.report() or ["no run was driven"]:
            terminalreporter.write_line(line)
        for name, table in self.required.items():
            if missing := self.edges.missing(table):
                terminalreporter.write_line(f"required {name}: {len(missing)} of {len(table.rows)} edges not walked", red=True)
