"""``fsm-agent ask``: a question in natural language, answered by a model with tools."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import attrs
import click
from click.core import ParameterSource

from fsm_agent.cli.exits import OK, SOME_FAILED
from fsm_agent.cli.named import attribute_named
from fsm_agent.cli.providers import NAMES, model_named
from fsm_agent.core.errors import BuildError
from fsm_agent.core.known_names import mend
from fsm_agent.core.limits import Limits
from fsm_agent.core.short_text import one_line, printable

if TYPE_CHECKING:
    from fsm_agent.agent import Agent
    from fsm_agent.core.answers import Answer
    from fsm_agent.core.run import Run


tools_option = click.option(
    "--tools", "tools_name", default="fsm_agent.lab.warehouse:TOOLS", show_default=True, help="module:attribute with tools.",
)  # fmt: skip
limit_option = click.option(
    "--limit", "limits", multiple=True, metavar="NAME=FIGURE", help="One limit: max_turns=5, or max_turns=none; may be repeated.",
)  # fmt: skip


@click.command("ask", short_help="Ask a question of a model with tools.")
@click.argument("question")
@click.option("--model", "model_name", default="offline", show_default=True, help=f"{NAMES}.")
@click.option("--base-url", help="Where an OpenAI- or Anthropic-compatible server listens.")
@tools_option
@click.option("--machine", "machine_name", default="agent", show_default=True, help="agent, autogpt, or module:attribute with a Table.")
@limit_option
@click.option("--instructions", default="", help="What the model is told first.")
@click.option("--code-mode", is_flag=True, help="Let the model answer with programs that call the tools.")
@click.option("--yes", is_flag=True, help="Approve every call that asks for a person.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show the run as it happens.")
def command(
    question: str,
    model_name: str,
    base_url: str | None,
    tools_name: str,
    machine_name: str,
    limits: tuple[str, ...],
    instructions: str,
    code_mode: bool,
    yes: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Ask QUESTION (- reads it from stdin) of a model with tools.

    The run is shown on stderr as it happens; the answer goes to stdout with
    its stop reason. Without --tools the lab's warehouse is asked about, and
    without --model a very small model that runs offline: it shows how a run
    goes, not how clever one can be. Exit codes: 0 answered, 1 stopped.

    \b
    Examples:
      fsm-agent ask "How many A-1001 are in stock in Seoul?"
      fsm-agent ask "..." --model openai:gpt-5 --tools my_tools:TOOLS --json
    """
    from fsm_agent.agent import Agent
    from fsm_agent.cli.machines import machine_of
    from fsm_agent.code_mode import CodeMode

    asked = _from_stdin() if question == "-" else question
    machine = machine_of(machine_name, "agent", "autogpt")
    agent = Agent(
        tools_named(tools_name),
        model_named(model_name, base_url),
        machine=machine.table,
        limits=limits_named(_unhurried(machine.limits or Limits(), model_name), limits),
        instructions=instructions,
        code_mode=CodeMode() if code_mode else None,
    )
    run = agent.start(asked)
    answer = _drive(agent, run, quiet=quiet, yes=yes)
    _print(answer, as_json=as_json)
    return OK if answer.ok else SOME_FAILED


def _from_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the question is no {error.encoding} text: {error.reason} at byte {error.start}") from None


def tools_given() -> bool:
    """Whether the running command was told its tools, and does not take those of the option's default."""
    return click.get_current_context().get_parameter_source("tools_name") is not ParameterSource.DEFAULT


def tools_named(name: str) -> Any:
    """The tools under ``module:attribute``; a single tool or function is one."""
    from fsm_agent.core.tools import Tool

    tools = attribute_named(name)
    return [tools] if isinstance(tools, Tool) or hasattr(tools, "__code__") else tools


def limits_named(base: Limits, named: tuple[str, ...]) -> Limits:
    """The limits with those changed that are written NAME=FIGURE; raises BuildError for one that there is not."""
    fields = attrs.fields_dict(Limits)
    changed: dict[str, Any] = {}
    for entry in named:
        name, equals, figure = entry.partition("=")
        if name not in fields or not equals:
            raise BuildError(f"--limit {entry!r:.60}: write NAME=FIGURE; {mend(name, fields, 'the limits are')}")
        try:
            changed[name] = None if figure == "none" else float(figure) if "." in figure else int(figure)
        except ValueError:
            raise BuildError(f"--limit {entry!r:.60}: {figure!r:.40} is no number; write a number or none") from None
    return attrs.evolve(base, **changed)


def _unhurried(limits: Limits, model_name: str) -> Limits:
    """The limits with time enough for a model that runs on this machine, on one thread."""
    return attrs.evolve(limits, deadline_s=_OFFLINE_S) if model_name == "offline" else limits


def _drive(agent: Agent, run: Run, *, quiet: bool, yes: bool) -> Answer:
    from fsm_agent.cli.live import Live

    live = Live(run, quiet=quiet)
    while True:
        for event in agent.stream(run):
            live.show(event)
        answer = agent.answer(run)
        if not answer.pending:
            return answer
        for one in answer.pending:
            if one.kind != "approval":
                return answer
            said = yes or _person_says(f"Let {one.tool} run with {one.args}?")
            if said is None:
                print(f"fsm-agent: nobody is there to approve {one_line(one.tool)}; --yes approves every call", file=sys.stderr)
                return answer
            if said:
                agent.approve(run, one.call_id)
            else:
                agent.deny(run, one.call_id, "no")


def _person_says(question: str) -> bool | None:
    """What a person at the terminal says; None where there is none, or none any more."""
    if not sys.stdin.isatty():
        return None
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        # The end of the input is told like Ctrl-C, but nobody wanted the run ended and what it found lost.
        if not isinstance(error.__context__, EOFError):
            raise
        print(file=sys.stderr)
        return None


def _print(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        from fsm_agent.cli.terminal import write_line

        write_line(answer_json(answer), flush=True)
        return
    # A model's text must not steer the terminal that it is printed on.
    click.echo("\n".join(map(printable, answer.text.expandtabs().split("\n"))))
    reason = f": {answer.stop_reason.value}" if answer.stop_reason is not None else ""
    click.echo(f"[{answer.status.value}{reason}]", err=True)


def answer_json(answer: Answer) -> dict[str, Any]:
    """The answer as plain data: everything but the run itself."""
    return {
        "status": answer.status.value,
        "text": answer.text,
        "stop_reason": answer.stop_reason.value if answer.stop_reason is not None else None,
        "stop": str(answer.stop) if answer.stop is not None else None,
        "evidence": [{"call": one.call_id, "tool": one.tool, "value": one.value} for one in answer.evidence],
        "assumptions": list(answer.assumptions),
        "unknowns": list(answer.unknowns),
        "next_questions": list(answer.next_questions),
        "citations": list(answer.citations),
        "pending": [{"call": one.call_id, "kind": one.kind, "tool": one.tool, "args": one.args} for one in answer.pending],
        "usage": answer.usage,
        "path": list(answer.path),
    }


_OFFLINE_S = 300.0
