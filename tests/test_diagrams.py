"""Diagrams: what is drawn is what the table says, whatever its states are called."""

from __future__ import annotations

import html
import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mermaidx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import adapter, diagrams
from fsm_agent.cli.machines import breaker_table
from fsm_agent.core._machine import Machine
from fsm_agent.core.agent_table import AGENT
from fsm_agent.core.autogpt_table import AUTOGPT
from fsm_agent.core.errors import BuildError, TableError
from fsm_agent.core.guards import Opaque
from fsm_agent.core.table import Row, State, Table
from fsm_agent.drawing import identifiers
from fsm_agent.host import breaker
from fsm_agent.lab.tables import DESK, NAIVE

ROOT = Path(__file__).parents[1]
# The names of BR-154, then what a reader of either language might trip over.
NAMES = ["ask user", "wait-for-it", "end", "Übergang", "状態", "1st", "a:b", 'a"b']
HOSTILE = [
    *NAMES,
    *("a b", "a_b", "A_b", "a__b", "_b_", "x;y", "x#35;", "#quot;", "<b>bold</b>", "&amp;", "&lt;", "back\\nslash", "tail\\"),
    *("two\nlines", "tab\t", "nul\x00", "\x1b[31mred", "half\ud800", "\u202eleft", "\U0001f600", "a --> b", "[*]", "{", "}"),
    *("%%{init: {}}%%", "`code`", "**bold**", "1. step", "- dash", "# head", "$$x$$", "a|b", ":::c", "@{ shape: rect}", "--"),
    *("state", "State", "note", "graph", "node", "edge", "subgraph", "digraph", "strict", "direction TB", "class", "[[fork]]"),
    *("__proto__", "constructor", "hasOwnProperty", "toString", "root", "root_start", "end note", "<<fork>>"),
    *("0", "é", "e\u0301", "long " * 40),
]
TABLES: dict[str, Table] = {"agent": AGENT, "desk": DESK, "naive": NAIVE, "breaker": breaker_table()}
FILES = {"agent": AGENT, "autogpt": AUTOGPT, "lab-desk": DESK, "lab-naive": NAIVE, "breaker": breaker_table()}


def chain(names: list[str]) -> Table:
    """A machine in which every state leads on to the next, to itself and to the end, each by outcomes of their names."""
    nexts = [*names[1:], "fin"]
    guard = Opaque("g:1; [x]", lambda run: True)
    rows: list[Row] = []
    for a, b in zip(names, nexts, strict=True):
        rows += Row(a, a, b, (guard,)), Row(a, a, a), Row(a, "out", "fin")
    return Table(
        name="chain",
        initial=names[0],
        states=[*(State(name, work="gather", tools=["tool:x", 't"y']) for name in names), State("fin", work="answer")],
        rows=rows,
    )


# ---- two small readers, which know the languages and not the module


class Read:
    """A diagram read back: labels by identifier, arrows with the lines of their labels, where it starts and ends."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.arrows: dict[tuple[str, str], list[str]] = {}
        self.starts: list[str] = []
        self.ends: list[str] = []
        self.bodies: dict[str, str] = {}

    @property
    def rows(self) -> Counter[tuple[str, str, str]]:
        return Counter((self.labels[a], line, self.labels[b]) for (a, b), lines in self.arrows.items() for line in lines)


def read_mermaid(text: str) -> Read:
    read = Read()
    first, *lines = text.splitlines()
    assert first == "stateDiagram-v2"
    for line in lines:
        line = line.strip()
        assert not line.endswith(":"), line
        if line.startswith(("%%", "classDef ", "class ")) or line == "direction TB":
            continue
        if found := re.fullmatch(r'state "([^"]*)" as (\w+)', line, re.ASCII):
            read.labels[found[2]] = plain(found[1])
        elif found := re.fullmatch(r"\[\*\] --> (\w+)", line, re.ASCII):
            read.starts.append(found[1])
        elif found := re.fullmatch(r"(\w+) --> \[\*\]", line, re.ASCII):
            read.ends.append(found[1])
        elif found := re.fullmatch(r"(\w+) --> (\w+)(?: : ([^:;\"{}]*(?:#\w+;[^:;\"{}]*)*))?", line, re.ASCII):
            assert (found[1], found[2]) not in read.arrows
            read.arrows[found[1], found[2]] = [plain(part) for part in (found[3] or "").split("<br/>") if part]
        elif found := re.fullmatch(r"(\w+) : (.+)", line, re.ASCII):
            read.bodies[found[1]] = plain(found[2])
        else:
            raise AssertionError(f"not a line of this grammar: {line}")
    return read


def plain(label: str) -> str:
    """What a reader of the diagram sees of a Mermaid label."""
    entities = re.sub(r"#(\w+);", lambda e: f"&#{e[1]};" if e[1].isdigit() else f"&{e[1]};", label.replace("<br/>", "\n"))
    return html.unescape(entities)


def read_dot(text: str) -> Read:
    read = Read()
    for line in text.splitlines():
        line = line.strip()
        if found := re.fullmatch(r"(\w+) \[label=<<table [^>]*>(.*)</table>>((?:, peripheries=2)?)[^>]*?\]", line, re.ASCII):
            cells = [re.sub(r"</?(?:b|font)(?: [^>]*)?>", "", cell) for cell in re.findall(r"<tr><td>(.*?)</td></tr>", found[2])]
            first, *rest = [html.unescape(cell.replace("<br/>", "\n")) for cell in cells]
            read.labels[found[1]], read.bodies[found[1]] = first, " ".join(rest)
            read.ends += [found[1]] if found[3] else []
        elif found := re.fullmatch(r"_start -> (\w+)", line, re.ASCII):
            read.starts.append(found[1])
        elif found := re.fullmatch(r'(\w+) -> (\w+)(?: \[(?:label="((?:[^"\\]|\\.)*)")?.*\])?', line, re.ASCII):
            assert (found[1], found[2]) not in read.arrows
            parts = re.split(r"(?<!\\)(?:\\\\)*\\n", found[3]) if found[3] else []
            read.arrows[found[1], found[2]] = [html.unescape(re.sub(r"\\(.)", r"\1", part)).strip() for part in parts]
        else:
            assert re.fullmatch(r"digraph machine \{|\}|(graph|node|edge|_start) \[.*\]", line, re.ASCII), line
    return read


READERS: dict[str, tuple[Callable[..., str], Callable[[str], Read]]] = {
    "mermaid": (diagrams.mermaid, read_mermaid),
    "dot": (diagrams.dot, read_dot),
}
both = pytest.mark.parametrize("language", READERS)
each_table = pytest.mark.parametrize("name", TABLES)


def drawn(language: str, machine: Any, **options: Any) -> Read:
    draw, read = READERS[language]
    return read(draw(machine, **options))


def seen(text: str) -> str:
    """A name as a diagram can show it: characters that nobody sees as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def words(row: Row, table: Table) -> str:
    """What one row is labelled with."""
    names = ", ".join(guard.name for guard in row.guards)
    before = [r for r in table.rows_of(row.source, row.outcome)[: table.rows_of(row.source, row.outcome).index(row)] if r.guards]
    return f"{row.outcome} [{names}]" if names else f"{row.outcome} [else]" if before else row.outcome


# ---- what is drawn is the table


@both
@each_table
def test_every_row_is_drawn_once_with_its_guards(language: str, name: str) -> None:
    table = TABLES[name]

    read = drawn(language, table)

    lines = {pair: " ".join(found).replace("[ ", "[") for pair, found in read.arrows.items()}
    for (a, b), text in lines.items():
        rows = [row for row in table.rows if (row.source, row.target) == (read.labels[a], read.labels[b])]
        assert text == " ".join(words(row, table) for row in rows)
    assert {(read.labels[a], read.labels[b]) for a, b in lines} == {(row.source, row.target) for row in table.rows}


@both
@each_table
def test_the_arrows_are_those_of_the_compiled_machine(language: str, name: str) -> None:
    """The oracle is `transitions` itself, asked for what it would walk."""
    compiled = Machine(TABLES[name], stock=True)
    walked = Counter(
        (one.source, event.name.removeprefix("on "), one.dest, tuple(c.func.__name__ for c in one.conditions))
        for event in compiled._machine.events.values()
        for several in event.transitions.values()
        for one in several
    )

    read = drawn(language, compiled)

    found: Counter[tuple[str, str, str, tuple[str, ...]]] = Counter()
    for (a, b), lines in read.arrows.items():
        label = " ".join(lines)
        for outcome, guards in re.findall(r"([^\s\[\]]+)(?: \[([^\]]*)\])?", label):
            named = () if guards in ("", "else") else tuple(guards.split(", "))
            found[read.labels[a], outcome, read.labels[b], named] += 1
    assert found == walked


@both
@each_table
def test_start_and_ends_are_marked(language: str, name: str) -> None:
    table = TABLES[name]

    read = drawn(language, table)

    assert [read.labels[start] for start in read.starts] == [table.initial]
    assert [read.labels[end] for end in read.ends] == [state.name for state in table.states if state.final]


@both
def test_each_state_shows_its_kind_of_work_and_its_tools(language: str) -> None:
    table = AGENT.allowing({"verify": ["judge", "count"], "repair": []})

    read = drawn(language, table)

    bodies = {read.labels[id]: " ".join(body.split()) for id, body in read.bodies.items()}
    tools = {"gather": "all", "verify": "count, judge"}
    assert bodies == {
        s.name: f"{table.kinds[s.work].about} tools: {tools.get(s.name, 'none')}" for s in table.states
    }


@both
def test_a_machine_that_calls_no_tools_says_nothing_of_them(language: str) -> None:
    assert all("tools" not in body for body in drawn(language, breaker_table()).bodies.values())


@both
def test_a_lambda_guard_goes_by_its_name(language: str) -> None:
    table = Table(
        name="t",
        initial="a",
        states=[State("a", work="call"), State("b", work="answer")],
        rows=[Row("a", "called", "b", (Opaque("is_tuesday", lambda run: True),)), Row("a", "failed", "b")],
    )

    assert drawn(language, table).rows == Counter({("a", "called [is_tuesday]", "b"): 1, ("a", "failed", "b"): 1})


@both
@pytest.mark.parametrize(
    "machine",
    [Machine(DESK), adapter.build_graph(), adapter.desk(), adapter.desk().engine(), adapter.desk().engine().setup],
    ids=["compiled", "graph", "desk", "engine", "setup"],
)
def test_whatever_has_the_table_can_be_drawn(language: str, machine: Any) -> None:
    assert READERS[language][0](machine) == READERS[language][0](DESK)


@pytest.mark.parametrize("draw", [diagrams.mermaid, diagrams.dot, diagrams.table_of])
@pytest.mark.parametrize("machine", [None, 1, "agent", [], AGENT.states, object, Table])
def test_what_has_no_table_is_refused(draw: Callable[[Any], Any], machine: Any) -> None:
    with pytest.raises(TableError, match="has no table of states and rows; give a Table"):
        draw(machine)


@both
def test_a_table_with_faults_is_drawn_whole(language: str) -> None:
    """Whoever looks for the fault wants to see it: states that are not there, twice there, out of reach."""
    table = Table(
        name="broken",
        initial="nowhere",
        states=[State("a", work="unheard of"), State("a", work="call", tools=None), State("alone", work="answer")],
        rows=[Row("a", "x", "gone"), Row("gone", "y", "a"), Row("a", "x", "gone")],
    )

    read = drawn(language, table)

    assert set(read.labels.values()) == {"a", "alone", "nowhere", "gone"}
    assert read.rows == Counter({("a", "x", "gone"): 2, ("gone", "y", "a"): 1})
    assert [read.labels[start] for start in read.starts] == ["nowhere"]
    assert read.bodies["a"].startswith("unheard of")


# ---- names


@both
def test_names_of_every_kind_are_shown_as_they_are(language: str) -> None:
    read = drawn(language, chain(HOSTILE))

    assert list(read.labels.values()) == [*map(seen, HOSTILE), "fin"]


@both
def test_identifiers_are_ascii_words_of_their_own_and_nobody_s_keyword(language: str) -> None:
    ids = drawn(language, chain(HOSTILE)).labels

    assert len(ids) == len(set(HOSTILE)) + 1
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", id) for id in ids)
    keywords = {"end", "state", "note", "graph", "node", "edge", "subgraph", "digraph", "strict", "class", "root"}
    assert {id.lower() for id in ids} & keywords == set()


@both
def test_no_row_of_hostile_names_is_lost(language: str) -> None:
    table = chain(NAMES)

    found = drawn(language, table).rows

    expected: Counter[tuple[str, str, str]] = Counter()
    for row in table.rows:
        expected[row.source, words(row, table), row.target] += 1
    assert found == expected


@both
@pytest.mark.parametrize("word", [name for name in HOSTILE if "\n" not in name], ids=ascii)
def test_an_outcome_and_a_guard_of_any_name_are_shown_as_they_are(language: str, word: str) -> None:
    guard = Opaque("is so", lambda run: True)
    states = [State("S", work="x"), State("T", work="answer")]
    table = Table(name="t", initial="S", states=states, rows=[Row("S", word, "T", (guard,)), Row("S", f"{word}!", "T")])

    (lines,) = drawn(language, table).arrows.values()

    assert " ".join(lines).split() == f"{seen(word)} [is so] {seen(word)}!".split()


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8))
def test_any_names_get_identifiers_of_their_own(names: list[str]) -> None:
    ids = identifiers(names)

    assert list(ids) == list(dict.fromkeys(names))
    assert len({id.lower() for id in ids.values()}) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", id) for id in ids.values())
    assert ids == identifiers(names)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6, unique=True).filter(lambda names: "fin" not in names))
def test_any_names_can_be_read_back(names: list[str]) -> None:
    for language in READERS:
        assert list(drawn(language, chain(names)).labels.values()) == [*map(seen, names), "fin"]


def test_a_plain_name_is_its_own_identifier() -> None:
    assert identifiers(["gather", "half_open", "Übergang"]) == {
        "gather": "gather",
        "half_open": "half_open",
        "Übergang": "Ubergang",
    }


def test_names_that_clean_to_one_word_stay_apart() -> None:
    assert list(identifiers(["a b", "a_b", "a-b", "a_b_2"]).values()) == ["a_b", "a_b_2", "a_b_3", "a_b_2_2"]


# ---- arrows


def six_ways() -> Table:
    """BR-157: four outcomes from S to T, one without a name, one from S to S."""
    rows = [*(Row("S", name, "T") for name in "abcd"), Row("S", "", "T"), Row("S", "again", "S")]
    return Table(name="six", initial="S", states=[State("S", work="call"), State("T", work="answer")], rows=rows)


@both
def test_no_outcome_between_two_states_is_dropped(language: str) -> None:
    expected = [("S", name, "T") for name in ("a", "b", "c", "d", "(no name)")] + [("S", "again", "S")]

    assert drawn(language, six_ways()).rows == Counter(expected)


@both
def test_an_outcome_without_a_name_has_an_arrow(language: str) -> None:
    table = Table(name="t", initial="S", states=[State("S", work="x"), State("T", work="answer")], rows=[Row("S", "", "T")])

    assert drawn(language, table).arrows == {("S", "T"): []}


@both
@pytest.mark.parametrize("name", [*TABLES, "six", "chain"])
def test_without_labels_the_same_states_are_connected(language: str, name: str) -> None:
    table = {**TABLES, "six": six_ways(), "chain": chain(HOSTILE)}[name]

    bare, full = drawn(language, table, labels=False), drawn(language, table)

    assert bare.arrows.keys() == full.arrows.keys()
    assert bare.labels == full.labels
    assert (bare.starts, bare.ends) == (full.starts, full.ends)
    assert not any(bare.arrows.values())
    assert not any(bare.bodies.values())


# ---- the same text each time, and that in the repository


@both
def test_the_text_does_not_hang_on_the_order_of_sets(language: str) -> None:
    table = AGENT.allowing({"gather": {f"tool_{n}" for n in range(40)}})
    code = (
        "from fsm_agent import diagrams; from fsm_agent.core.agent_table import AGENT; import sys;"
        "table = AGENT.allowing({'gather': {f'tool_{n}' for n in range(40)}});"
        f"sys.stdout.write(diagrams.{language}(table))"
    )

    env = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout == READERS[language][0](table)


@pytest.mark.parametrize("name", FILES)
def test_the_diagrams_of_the_repository_are_those_of_the_tables(name: str) -> None:
    assert (ROOT / "diagrams" / f"{name}.mmd").read_text(encoding="utf-8") == diagrams.mermaid(FILES[name])
    assert (ROOT / "diagrams" / f"{name}.dot").read_text(encoding="utf-8") == diagrams.dot(FILES[name])


def test_the_breaker_s_diagram_has_the_breaker_s_rows() -> None:
    table = breaker_table()

    assert table.rows == breaker.rows()
    assert [state.name for state in table.states] == [str(state) for state in breaker.BreakerState]


# ---- the real Mermaid


def shown_by_mermaid(text: str) -> str:
    svg = str(mermaidx.render(text).svg())
    assert "Unsupported markdown" not in svg
    return "".join(html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL))).split())


def squeezed(texts: Iterable[str]) -> list[str]:
    return ["".join(text.split()) for text in texts]


@pytest.mark.parametrize("name", ["agent", "breaker"])
def test_mermaid_shows_every_state_and_every_label(name: str) -> None:
    table = TABLES[name]

    shown = shown_by_mermaid(diagrams.mermaid(table))

    for text in squeezed([*(state.name for state in table.states), *(words(row, table) for row in table.rows)]):
        assert text in shown


def test_mermaid_shows_hostile_names_unchanged() -> None:
    """As states and as outcomes; a few, for the real reader takes its time."""
    names = [
        *("end", "a:b", 'a"b', "x;y", "x#35;", "<b>bold</b>", "__proto__", "back\\nslash", "half\ud800", "%%{init: {}}%%"),
        *("`code`", "1. step", "- dash", "hasOwnProperty", "状態", "{", "$$x$$", "Direction TB", "[[fork]]", "<<fork>>"),
    ]
    pairs = zip(names, [*names[1:], "fin"], strict=True)
    table = Table(
        name="t",
        initial=names[0],
        states=[*(State(name, work="call") for name in names), State("fin", work="answer")],
        rows=[Row(a, a, b) for a, b in pairs],
    )

    shown = shown_by_mermaid(diagrams.mermaid(table))

    assert [text for text in squeezed(map(seen, names)) if shown.count(text) < 2] == []


# ---- images


LOOPS = Table(
    name="loops",
    initial=HOSTILE[0],
    states=[State(name, work="gather", tools=[name]) for name in HOSTILE],
    rows=[Row(name, name, name) for name in HOSTILE],
)


@pytest.mark.parametrize("name", [*TABLES, "loops"])
def test_an_svg_has_every_state_and_arrow(name: str, tmp_path: Path) -> None:
    table = {**TABLES, "loops": LOOPS}[name]

    path = diagrams.image(table, tmp_path / "machine.svg")

    root = ElementTree.fromstring(path.read_bytes())
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    read = read_dot(diagrams.dot(table))
    assert set(titles) >= {*read.labels, *(f"{a}->{b}" for a, b in read.arrows)}
    fonts = {element.get("font-family") for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert fonts == {"Helvetica,Arial,sans-serif"}


def test_a_png_is_one_and_the_same_each_time(tmp_path: Path) -> None:
    path = diagrams.image(DESK, str(tmp_path / "desk.PNG"))

    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.read_bytes() == diagrams.render(DESK, "png")


def test_an_image_without_labels_is_a_smaller_one() -> None:
    assert len(diagrams.render(AGENT, "svg", labels=False)) < len(diagrams.render(AGENT, "svg"))


@pytest.mark.parametrize("name", ["machine", "machine.pdf", "machine.svg.txt", ".svg"])
def test_a_name_that_does_not_say_how_to_draw_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"let it end in \.svg or \.png"):
        diagrams.image(AGENT, tmp_path / name)

    assert list(tmp_path.iterdir()) == []


def test_another_format_is_refused() -> None:
    with pytest.raises(BuildError, match="cannot be drawn as 'pdf'; take svg or png"):
        diagrams.render(AGENT, "pdf")


# ---- without the packages that draw


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an interpreter that has what the core needs and nothing else."""
    site = tmp_path_factory.mktemp("site")
    for found in (Path(str(importlib.import_module(name).__file__)) for name in ("attr", "attrs", "transitions", "six")):
        place = found.parent if found.name == "__init__.py" else found
        (site / place.name).symlink_to(place)
    (site / "fsm_agent").symlink_to(ROOT / "fsm_agent")
    return {"PYTHONPATH": str(site), "PATH": "/nonexistent"}


BARE = """
from fsm_agent import adapter, diagrams
assert adapter.handle({"sku": "A-1001", "region": "seoul", "limit": 2})["ok"]
graph = adapter.build_graph()
assert "fetch --> reply" in diagrams.mermaid(graph)
assert "fetch -> reply" in diagrams.dot(graph)
try:
    diagrams.image(graph, "never.png")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_only_an_image_needs_what_draws_it(bare: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-S", "-c", BARE], env=bare, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert done.stderr == ""
    assert done.stdout == (
        "MissingExtra drawing SVG and PNG needs the package 'graphviz-pure': pip install \"fsm-agent[diagram]\"\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_package_that_draws_is_the_one_that_the_extra_names() -> None:
    assert metadata.version("graphviz-pure")
