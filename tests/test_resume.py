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

EPISODES = 12
OPTIONS = (
    "--horizon 20 --pool 16 --updates .5 --batch 8 --width 8 --features 8 --model-width 8 --model-rounds 2 "
    "--model-steps 2 --acting-points 3"
).split()


def start(*arguments: str | Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "rhucrl.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(*arguments: str | Path) -> None:
    process = start(*arguments)
    told = process.communicate()[1]
    assert process.returncode == 0, told


def train(folder: Path, episodes: int) -> tuple[str | Path, ...]:
    return ("train", "pendulum", *OPTIONS, "--episodes", str(episodes), "--run-dir", folder)


def rows(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(arguments: tuple[str | Path, ...], moment: Callable[[], object]) -> None:
    """Start a command and kill it as soon as `moment` says so."""
    process = start(*arguments)
    while not moment():
        assert process.poll() is None, f"it ended before it could be killed: {process.stderr.read()}"
        time.sleep(0.0002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def shortly_after(moment: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    def wait() -> bool:
        if moment():
            time.sleep(seconds)
            return True
        return False

    return wait


def result(folder: Path) -> tuple[bytes, dict[str, dict[str, bytes]]]:
    """The metrics and the arrays of both policies and of the last checkpoint."""
    places = ("policy", "policy-last", f"checkpoints/{rows(folder) - 1:06d}")
    arrays = {place: safetensors.numpy.load_file(folder / place / "arrays.safetensors") for place in places}
    plain = {place: {name: x.tobytes() for name, x in found.items()} for place, found in arrays.items()}
    return (folder / "metrics.jsonl").read_bytes(), plain


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(*train(folder, EPISODES))
    assert rows(folder) == EPISODES
    return folder


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_in_the_same_bytes(undisturbed, tmp_path):
    folder, chance = tmp_path / "run", random.Random()
    checkpoints = folder / "checkpoints"
    resume = ("resume", folder)

    def writing(pattern: str, after: int) -> Callable[[], bool]:
        return lambda: rows(folder) > after and any(checkpoints.glob(pattern))

    kill(train(folder, EPISODES), shortly_after(lambda: rows(folder) >= 1, chance.uniform(0, 0.3)))
    kill(resume, writing(".*.new-*", rows(folder)))  # the next checkpoint is being written
    kill(resume, shortly_after(lambda n=rows(folder): rows(folder) > n, chance.uniform(0, 0.02)))
    finish(*resume)
    assert result(folder) == result(undisturbed)


@pytest.mark.slow
def test_a_run_can_be_prolonged(undisturbed, tmp_path):
    folder = tmp_path / "run"
    finish(*train(folder, 3))
    begun = (folder / "metrics.jsonl").read_bytes()
    kill(("resume", folder, "--episodes", str(EPISODES)), lambda: rows(folder) > 4)
    finish("resume", folder)  # to the number that was asked for last
    assert (folder / "metrics.jsonl").read_bytes().startswith(begun)
    assert result(folder) == result(undisturbed)
