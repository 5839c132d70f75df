"""The floors of the house: imports go down only, and each floor keeps to what it may touch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fsm_agent

ROOT = Path(fsm_agent.__file__).parent

FLOORS: dict[str, int] = {
    # 0: words and values
    "_version": 0,
    "core": 0,
    "core.decoding": 0,
    "core.errors": 0,
    "core.generated": 0,
    "core.figures": 0,
    "core.json_kinds": 0,
    "core.messages": 0,
    "core.patterns": 0,
    "core.text_formats": 0,
    "core.values": 0,
    "host": 0,
    "lab": 0,
    "lab.stock": 0,
    "models": 0,
    # 1: what a tool is, canonical keys, plain data, limits, the one living run
    "core.annotations": 1,
    "core.canonical": 1,
    "core.contracts": 1,
    "core.events": 1,
    "core.exact_values": 1,
    "core.json_tags": 1,
    "core.json_decisions": 1,
    "core.keys": 1,
    "core.known_names": 1,
    "core.callables": 0,
    "core.limits": 1,
    "core.markers": 1,
    "core.foreign_schemas": 1,
    "core.model_types": 1,
    "core.plain": 1,
    "core.rule_schema": 1,
    "core.rules": 1,
    "core.table_plans": 1,
    "core.table_faults": 1,
    "core.run": 1,
    "core.schema_check": 1,
    "core.schema_keywords": 1,
    "core.schema_parts": 1,
    "core.schema_validator": 1,
    "core.schemas": 1,
    "core.signatures": 1,
    "core.short_text": 1,
    "core.small_json": 1,
    "core.spec_check": 1,
    "core.storable": 1,
    "core.tree_copy": 1,
    "core.tool_check": 1,
    "core.tools": 1,
    "core.independence": 1,
    "core.typed_answer": 1,
    # 2: guards and the gate
    "core.gate": 2,
    "core.guards": 2,
    "core.redact": 2,
    "core.secret_seals": 2,
    # 3: the table, its checks, the machine
    "core._machine": 3,
    "core.agent_table": 3,
    "core.autogpt_table": 3,
    "core.checks": 3,
    "core.table": 3,
    # 4: the engine and its parts
    "core.answers": 4,
    "core.bounds": 4,
    "core.claims": 4,
    "core.effects": 4,
    "core.ending": 4,
    "core.engine": 4,
    "core.instructions": 4,
    "core.normalizing": 4,
    "core.observing": 4,
    "core.programs": 4,
    "core.proposal": 4,
    "core.replay": 4,
    "core.repairing": 4,
    "core.results": 4,
    "core.saving": 4,
    "core.setup": 4,
    "core.skipping": 4,
    "core.stops": 4,
    "core.trace": 4,
    "core.walked": 3,
    "core.turn": 4,
    "core.verifying": 4,
    "core.work": 4,
    "core.asking": 4,
    "core.held_calls": 4,
    "core.pending": 4,
    "core.prompts": 4,
    "core.strategies": 4,
    "core.stream_events": 4,
    "core.transcript": 4,
    "core.writing": 4,
    # 5: everything that touches the world
    "host.answering": 5,
    "host.bodies": 5,
    "host.breaker": 5,
    "host.clock": 5,
    "host.drivers": 5,
    "host.definitions": 5,
    "host.mcp_connection": 5,
    "host.live_tools": 5,
    "host.memory": 5,
    "host.model": 5,
    "host.logs": 5,
    "host.perform": 5,
    "host.door": 5,
    "host.ports": 5,
    "host.tasks": 5,
    "host.tool_forms": 5,
    "host.calling": 5,
    "host.fixes": 5,
    "host.guide": 5,
    "host.hooks": 5,
    "host.in_time": 5,
    "host.pace": 5,
    "host.workers": 5,
    "host.interrupt": 5,
    "host.model_decider": 5,
    "host.tool_verifier": 5,
    "host.replies": 5,
    "host.reentrance": 5,
    "host.resolve": 5,
    "host.watching": 5,
    "models.anthropic_messages": 5,
    "models.bounded_schema": 5,
    "models.client_call": 5,
    "models.kept": 5,
    "models.failures": 5,
    "models.finishes": 5,
    "models.json_model": 5,
    "models.local_server": 5,
    "models.narrow_schema": 5,
    "models.offered": 5,
    "models.offline": 5,
    "models.openai_chat": 5,
    "models.openai_responses": 5,
    "models.own_loop": 5,
    "models.pydantic_ai_model": 5,
    "models.wire_history": 5,
    "models.wire_values": 5,
    # 6: faces
    "": 6,
    "adapter": 6,
    "agui": 6,
    "agui_calls": 6,
    "agui_lines": 6,
    "agui_resume": 6,
    "sse": 6,
    "stream_encoding": 6,
    "agent": 6,
    "code_mode": 6,
    "desk": 6,
    "desk_answers": 6,
    "scenario": 6,
    "scenario.came": 6,
    "scenario.driving": 6,
    "scenario.expecting": 6,
    "scenario.expecting_calls": 6,
    "scenario.expecting_events": 6,
    "scenario.faults": 6,
    "scenario.matching": 6,
    "scenario.named_errors": 6,
    "scenario.ops": 6,
    "scenario.reading": 6,
    "scenario.runner": 6,
    "scenario.script": 6,
    "scenario.scripted_model": 6,
    "scenario.scripted_tools": 6,
    "scenario.stage": 6,
    "scenario.steps": 6,
    "scenario.surroundings": 6,
    "scenario.task_stage": 6,
    "scenario.verdict_lines": 6,
    "scenario.thread_stage": 6,
    "scenario.track": 6,
    "scenario.values": 6,
    "scenario.virtual_clock": 6,
    "scenario.virtual_loop": 6,
    "scenario.mistyped": 6,
    "scenario.world": 6,
    "guarded": 6,
    "guarded_adapters": 6,
    "guarded_functions": 6,
    "guarded_queue": 6,
    "guarded_session": 6,
    "mcp_tools": 6,
    "diagrams": 6,
    "dot_text": 6,
    "drawing": 6,
    "edges": 6,
    "mermaid_text": 6,
    "lab.report": 6,
    "lab.tables": 6,
    "lab.warehouse": 6,
    "testing": 6,
    "people": 6,
    "streaming": 6,
    # 7: the command line
    "__main__": 7,
    "cli": 7,
    "cli.app": 7,
    "pytest_edges": 7,
    "cli.ask": 7,
    "cli.live": 7,
    "cli.providers": 7,
    "cli.scenario": 7,
    "cli.bound": 7,
    "cli.check": 7,
    "cli.diagram": 7,
    "cli.exits": 7,
    "cli.handle": 7,
    "cli.lines": 7,
    "cli.machines": 7,
    "cli.named": 7,
    "cli.report": 7,
    "cli.tally": 7,
    "cli.terminal": 7,
    "cli.trace": 7,
}
# What has a `state` of its own and is no run: a breaker, and an error that tells one.
OTHER_STATES = {("host.breaker", "breaker"), ("core.errors", "self")}
IMPURE = {"time", "random", "asyncio", "threading", "os", "io", "socket", "subprocess", "logging", "secrets", "queue", "sched"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
each_module = pytest.mark.parametrize("module", FILES, ids=lambda module: module or "fsm_agent")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """The dotted names that import statements ask for; of our own modules the name without the package."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            base = node.module or ""
            inner = base.removeprefix("fsm_agent").lstrip(".")
            for alias in node.names:
                within = f"{inner}.{alias.name}".lstrip(".")
                yield f"fsm_agent.{within}" if base.startswith("fsm_agent") and within in FILES else base


def own_imports(module: str) -> set[str]:
    names = {name for name in imports(ast.walk(tree(module))) if name.split(".")[0] == "fsm_agent"}
    return {name.removeprefix("fsm_agent").lstrip(".") for name in names}


def outer_imports(nodes: Iterator[ast.AST]) -> set[str]:
    return {name.split(".")[0] for name in imports(nodes)} - {"fsm_agent"}


def at_module_level(module: str) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported."""
    todo: list[ast.AST] = [tree(module)]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


# ---- floors


def test_every_module_has_its_floor() -> None:
    assert sorted(set(FILES) - set(FLOORS)) == [], "give each new module a floor"
    assert sorted(set(FLOORS) - set(FILES)) == [], "these modules are gone"


def test_imports_go_down_only() -> None:
    up = [(module, name) for module in FILES for name in own_imports(module) if FLOORS.get(name, 99) > FLOORS.get(module, 99)]
    assert sorted(up) == []


def test_only_modules_that_are_there_are_imported() -> None:
    assert [(module, name) for module in FILES for name in sorted(own_imports(module) - set(FILES))] == []


def test_no_import_comes_back_to_its_own_module() -> None:
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail, module])
        if module not in done:
            for name in sorted(own_imports(module)):
                walk(name, (*trail, module))
            done.add(module)

    for module in FILES:
        walk(module, ())
    assert done == set(FILES)


# ---- what each floor may touch


def test_one_file_knows_the_library_of_machines() -> None:
    assert [module for module in FILES if "transitions" in outer_imports(ast.walk(tree(module)))] == ["core._machine"]


@pytest.mark.parametrize("module", [module for module in FILES if module.startswith("core")])
def test_the_core_touches_no_world(module: str) -> None:
    assert sorted(outer_imports(ast.walk(tree(module))) & IMPURE) == []
    assert [name for name in sorted(own_imports(module)) if not name.startswith("core")] == []
    calls = {node.func.id for node in ast.walk(tree(module)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    # A record's constructor is written out from its fields, as attrs writes its own.
    written = {"exec"} if module == "core.generated" else set()
    assert sorted(calls & {"open", "print", "input", "eval", "exec", "__import__"} - written) == []
    assert [node for node in ast.walk(tree(module)) if isinstance(node, ast.Global)] == []


# The commands stand on click, and a plugin of pytest is loaded by pytest.
@pytest.mark.parametrize("module", [module for module in FILES if module.split(".")[0] not in ("cli", "__main__", "pytest_edges")])
def test_only_the_two_libraries_it_stands_on_are_imported_with_a_module(module: str) -> None:
    foreign = outer_imports(at_module_level(module)) - set(sys.stdlib_module_names)
    assert sorted(foreign - {"attrs", "transitions"}) == []


# Commands stand on click and write with rich; what is read under pytest and what pytest loads are two plugins.
IN_SEVERAL_FILES = {"attrs", "click", "rich", "pytest"}


def test_every_other_library_has_one_file_as_its_door() -> None:
    doors: dict[str, list[str]] = {}
    for module in FILES:
        calls = (node for node in ast.walk(tree(module)) if isinstance(node, ast.Call))
        loads = (node.args[0] for node in calls if ast.unparse(node.func).endswith("import_module"))
        named = {name.value.split(".")[0] for name in loads if isinstance(name, ast.Constant)}
        for library in (outer_imports(ast.walk(tree(module))) | named) - set(sys.stdlib_module_names) - IN_SEVERAL_FILES:
            doors.setdefault(library, []).append(module)

    assert {library: modules for library, modules in doors.items() if len(modules) > 1} == {}
    assert {"transitions", "jsonschema", "mcp", "ag_ui", "pydantic_monty"} <= doors.keys()


def moves_of_state(module: str) -> Iterator[str]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value)
            if (module, owner) not in OTHER_STATES:
                yield f"line {node.lineno}: {owner}.state is set"
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            if name in ("setattr", "__setattr__", "delattr") and any(
                isinstance(arg, ast.Constant) and arg.value == "state" for arg in node.args
            ):
                yield f"line {node.lineno}: state is set by {name}"
            if name in ("evolve", "replace") and any(keyword.arg == "state" for keyword in node.keywords):
                yield f"line {node.lineno}: state is changed by {name}"


def test_only_the_machine_moves_a_run() -> None:
    found = {module: moves for module in FILES if (moves := list(moves_of_state(module)))}
    assert list(found) == ["core._machine"], found


def test_the_machine_does_move_a_run() -> None:
    assert len(list(moves_of_state("core._machine"))) == 2


# ---- size and words


def test_a_file_is_read_in_one_sitting() -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in FILES.items()}
    assert {module: number for module, number in lines.items() if number > 350} == {}


# The methods of each class that say what they do; those of a class that is derived from it need not say it again.
TOLD = {
    node.name: {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(one)}
    for module in FILES for node in tree(module).body if isinstance(node, ast.ClassDef)
}  # fmt: skip


@each_module
def test_everything_public_says_what_it_is(module: str) -> None:
    silent = [] if ast.get_docstring(tree(module)) else ["the module"]
    for node in tree(module).body:
        public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        told_before = set().union(*(TOLD.get(ast.unparse(base), ()) for base in node.bases)) if public else set()
        inner = [(f"{node.name}.", one) for one in node.body if getattr(one, "name", "") not in told_before] if public else []
        for owner, one in [("", node), *inner]:
            if not isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or one.name.startswith("_"):
                continue
            if any(ast.unparse(decorator).endswith(("overload", ".setter")) for decorator in one.decorator_list):
                continue
            # What each kind of work does when it is entered, asked and told is said once, by the protocol.
            told = owner and owner != "Work." and one.name in ("enter", "ask", "tell")
            silent += [] if told or ast.get_docstring(one) else [owner + one.name]
    assert silent == []


def test_nothing_is_left_to_be_done_later() -> None:
    words = ("TODO", "FIXME", "NotImplemented" + "Error")
    assert [(module, word) for module, path in FILES.items() for word in words if word in path.read_text(encoding="utf-8")] == []
