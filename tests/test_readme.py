"""The README is run: its programs print what it says, its commands are those of CI, its diagram is the machine's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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

    assert done.returncode in (0, 1, 3)
    assert '"ok":true' in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_a_file_that_the_readme_links_to_is_there(path: str) -> None:
    assert (ROOT / path).exists()
