"""What the documentation says of models and algorithms of one's own is done as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
BLOCKS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^##).)*?^```python\n(.*?)^```", TEXT, re.M | re.S))


def run(title: str, tmp_path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKS[title]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_block_is_run():
    assert [*BLOCKS] == ["Add a model", "Add an algorithm"] and TEXT.count("```python") == len(BLOCKS)


@pytest.mark.slow
def test_a_model_of_ones_own_grows_more_certain(tmp_path):
    found = re.search(r"deviation: ([\d.]+) after one episode, ([\d.]+) after two", run("Add a model", tmp_path))
    assert found and 0 < float(found[2]) < float(found[1])


@pytest.mark.slow
def test_a_row_of_ones_own_is_an_algorithm(tmp_path):
    lines = run("Add an algorithm", tmp_path).splitlines()
    assert ["J_pessimistic" in line for line in lines[:2]] == [False, True]  # of random actions, none
    assert lines[2].startswith("Agent(pendulum, adversarial 0.2, seed 0: 2 episodes")
