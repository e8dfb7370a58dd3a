"""The README as a reader takes it: its blocks run as they stand, and every command in it is one."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rhucrl.cli import main as cli

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.M | re.S)
INLINE = re.findall(r"`(rhucrl [^`]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.M | re.S))


def lines(block: str) -> list[str]:
    return [line for line in (row.split("#")[0].strip() for row in block.splitlines()) if line]


def test_every_block_is_run():
    """Blocks are Python, or commands of a shell; each kind has its test below."""
    assert [kind for kind, _ in BLOCKS] == ["sh", "python", "sh", "python"]
    assert "make" in BLOCKS[0][1]


@pytest.mark.parametrize("block", [block for kind, block in BLOCKS if kind == "python"])
def test_python_runs_as_it_stands(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "worst_case" in block:
        found = re.search(r"return (-\d+), in the worst case (-\d+)", done.stdout)
        assert found and int(found[2]) <= int(found[1])


def test_commands_run_as_they_stand(tmp_path):
    for command in lines(BLOCKS[2][1]):
        program, *arguments = shlex.split(command)
        assert program == "rhucrl"
        done = subprocess.run(
            [sys.executable, "-m", "rhucrl", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert {path.suffix for path in tmp_path.rglob("video*")} == {".mp4", ".gif"}


def test_the_targets_of_make_are_there():
    """`make test` is what runs this, and `make demo` has a test of its own."""
    for command in lines(BLOCKS[0][1]):
        done = subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", INLINE)
def test_every_command_in_the_text_is_one(command):
    """It is understood to the last option; where it is not given a run, it is not run."""
    _, *arguments = shlex.split(command)
    if "--help" in arguments:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert not stop.value.code
    else:
        assert hasattr(cli._parse(arguments), "run")


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (ROOT / target).exists(), target
