"""What has to work on every supported Python, through the installed command: train, resume, attack and film.

`make test-pythons` runs this file alone, on a plain installation of the wheel.
"""

from __future__ import annotations

import importlib.metadata as metadata
import json
import math
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest

from probes import SMALL_ROBOT, typed

COMMAND = Path(sysconfig.get_path("scripts"), "rhucrl")
EPISODES = 3
TINY = {**SMALL_ROBOT, "horizon": 20, "pool": 16, "features": 8, "acting_points": 3, "rollouts": 1}
pytestmark = [pytest.mark.portable, pytest.mark.slow]


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen([COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rhucrl(*arguments: str | Path) -> str:
    process = start(*arguments)
    output, errors = process.communicate()
    if process.returncode == 2 and "nothing can draw without a screen" in errors:
        pytest.skip(errors)  # all that came before the film has passed
    assert process.returncode == 0, errors
    assert "warning" not in errors.lower(), errors
    return output


def training(env: str, folder: Path) -> list[str | Path]:
    return ["train", *env.split(), *typed(TINY, env), "--episodes", str(EPISODES), "--run-dir", folder]


def metrics(folder: Path) -> list[str]:
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def train(env: str, folder: Path) -> list[str]:
    rhucrl(*training(env, folder))
    found = metrics(folder)
    assert len(found) == EPISODES
    assert all(math.isfinite(json.loads(line)["return"]) for line in found)
    return found


def kill_after_an_episode(env: str, folder: Path) -> None:
    process = start(*training(env, folder))
    while not metrics(folder) and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    errors = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, f"it ended before it could be killed: {errors}"


def test_the_command_is_that_of_the_installed_version():
    assert rhucrl("--version").split()[-1] == metadata.version("rhucrl")


@pytest.mark.parametrize("env", ["pendulum", "inverted-pendulum"])  # with look-ahead and with actor-critic
def test_a_run_is_trained_resumed_attacked_and_filmed(env, tmp_path):
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    expected = train(env, undisturbed)
    kill_after_an_episode(env, run)
    assert len(metrics(run)) < EPISODES
    rhucrl("resume", run)
    assert metrics(run) == expected
    assert "worst case" in rhucrl("attack", run, "--budget", "quick")
    films = rhucrl("video", run, "--seconds", "0.5").split()
    assert [Path(film).suffix for film in films] == [".mp4", ".gif"]
    assert all(Path(film).stat().st_size > 1000 for film in films)


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_a_run_without_a_model(algo, tmp_path):
    train(f"inverted-pendulum --algo {algo}", tmp_path / "run")
