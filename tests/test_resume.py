"""A real run, killed again and again, ends in the same bytes as one that nobody touched."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.numpy

from probes import SMALL_ROBOT, typed

EPISODES = 12
OPTIONS = {**SMALL_ROBOT, "horizon": 20, "pool": 16, "features": 8, "acting_points": 3}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def start(*arguments: str | Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "rhucrl.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(*arguments: str | Path) -> None:
    process = start(*arguments)
    told = process.communicate()[1]
    assert process.returncode == 0, told


def train(env: str, folder: Path, episodes: int) -> tuple[str | Path, ...]:
    return ("train", *env.split(), *typed(OPTIONS, env), "--episodes", str(episodes), "--run-dir", folder)


def rows(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(arguments: tuple[str | Path, ...], moment: Callable[[], object], delay: float = 0.0) -> None:
    """Start a command and kill it as soon as `moment` says so, or `delay` seconds later."""
    process = start(*arguments)
    try:
        while not moment():
            assert process.poll() is None, f"it ended before it could be killed: {process.communicate()[1]}"
            time.sleep(0.0002)
        time.sleep(delay)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def later(folder: Path) -> Callable[[], bool]:
    """Whether the run has told of another episode since this was called."""
    begun = rows(folder)
    return lambda: rows(folder) > begun


def result(folder: Path) -> tuple[bytes, dict[str, dict[str, bytes]]]:
    """The metrics and the arrays of both policies and of the last checkpoint."""
    places = ("policy", "policy-last", f"checkpoints/{rows(folder) - 1:06d}")
    arrays = {place: safetensors.numpy.load_file(folder / place / "arrays.safetensors") for place in places}
    plain = {place: {name: x.tobytes() for name, x in found.items()} for place, found in arrays.items()}
    return (folder / "metrics.jsonl").read_bytes(), plain


@pytest.mark.parametrize("env", ["pendulum", "hopper", "pendulum --model gp --points 100"])
def test_a_run_killed_at_any_moment_and_prolonged_ends_in_the_same_bytes(env, tmp_path):
    undisturbed, folder, chance = tmp_path / "undisturbed", tmp_path / "run", random.Random()
    finish(*train(env, undisturbed, EPISODES))
    assert rows(undisturbed) == EPISODES
    resume = ("resume", folder)
    kill(train(env, folder, EPISODES - 4), later(folder), chance.uniform(0, 0.05))
    another = later(folder)
    kill(resume, lambda: another() and any((folder / "checkpoints").glob(".*.new-*")))  # while it writes one
    kill((*resume, "--episodes", str(EPISODES)), later(folder), chance.uniform(0, 0.02))
    finish(*resume)  # to the number of episodes that was asked for last
    assert result(folder) == result(undisturbed)
