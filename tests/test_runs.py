"""A run's folder survives kills, damage, full disks, read-only folders and second processes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from rhucrl.config import TrainConfig
from rhucrl.errors import DiskError, UsageError
from rhucrl.storage import runs
from rhucrl.storage.runs import Run, read_meta, save_tree

CONFIG = {"env": "pendulum", "episodes": 3}


def state(episode: int) -> dict:
    return {"weights": np.full((40, 50), episode, np.float32), "count": episode, "log": np.arange(5) < episode}


def damage(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "lose":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-7], "empty": b"", "flip": data}[harm])


def play(run: Run, first: int, last: int) -> None:
    for episode in range(first, last + 1):
        run.append_metrics({"episode": episode, "return": np.float32(episode) / 3})
        run.save_checkpoint(episode, state(episode), {"rng": [episode]})


def test_a_run_keeps_its_configuration_metrics_and_two_checkpoints(tmp_path):
    config = TrainConfig.preset("hopper", heads=7)
    with Run.create(tmp_path / "run", config) as run:
        assert run.load_checkpoint(state(0)) is None
        play(run, 1, 5)
        run.save_policy(state(5), {"return": jnp.float32(2)})
        run.save_policy(state(4), name="policy-last")
    run = Run.open(tmp_path / "run")
    assert run.config["model"]["heads"] == 7 and TrainConfig.of_tree(run.config) == config
    assert {"python", "rhucrl", "jax", "numpy", "equinox", "mujoco"} <= set(run.versions)
    assert run.changed_versions() == {}
    assert [row["episode"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert sorted(os.listdir(tmp_path / "run" / "checkpoints")) == ["000004", "000005"]
    episode, tree, meta = run.load_checkpoint(state(5))
    assert (episode, tree["count"], meta) == (5, 5, {"rng": [5]})
    assert read_meta(tmp_path / "run" / "policy") == {"return": 2.0}
    assert run.load_checkpoint(lambda meta: state(meta["rng"][0]))[0] == 5
    with pytest.raises(RuntimeError, match="with run"):
        run.append_metrics({"episode": 6})


def test_a_run_can_be_prolonged_and_keeps_its_seconds_apart(tmp_path):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 3)
        for episode in (1, 2, 3):
            run.append_timing({"episode": episode, "wall": 0.5})
        run.reconfigure(CONFIG | {"episodes": 9})
        run.truncate_metrics(2)
    again = Run.open(tmp_path / "run")
    assert (run.config, again.config) == (CONFIG | {"episodes": 9},) * 2
    assert again.versions == runs.versions()
    assert [row["episode"] for row in again.timing()] == [row["episode"] for row in again.metrics()] == [1, 2]


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 4)
    whole = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    damage(tmp_path / "run" / "checkpoints" / "000004" / "arrays.safetensors", "cut")
    with Run.open(tmp_path / "run") as run:
        with pytest.warns(UserWarning, match=r"000004.*damaged.*Continuing from episode 3"):
            episode, tree, _ = run.load_checkpoint(state(0))
        assert (episode, tree["count"]) == (3, 3)
        run.truncate_metrics(3)
        play(run, 4, 4)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == whole
    assert Run.open(tmp_path / "run").load_checkpoint(state(4))[0] == 4
    for name in ("000003", "000004"):
        damage(tmp_path / "run" / "checkpoints" / name / "meta.json", "lose")
    with pytest.raises(UsageError, match="no whole checkpoint"):
        Run.open(tmp_path / "run").load_checkpoint(state(4))


def test_a_torn_row_is_no_row(tmp_path):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 2)
    path = tmp_path / "run" / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"episode": 3, "ret')
    assert len(Run.open(path.parent).metrics()) == 2
    with Run.open(path.parent):
        assert path.read_bytes() == whole


def test_a_second_process_is_refused(tmp_path):
    code = "import sys; from rhucrl.storage.runs import Run\nwith Run.open(sys.argv[1]): pass"
    with Run.create(tmp_path / "run", CONFIG):
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"), Run.open(tmp_path / "run"):
            pass
        other = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True)
        assert "in use by process" in other.stderr
    with Run.open(tmp_path / "run"):
        pass


def test_an_existing_run_or_other_files_are_never_taken_over(tmp_path):
    Run.create(tmp_path / "run", CONFIG).close()
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(UsageError, match="rhucrl resume"):
        Run.create(tmp_path / "run", {"env": "other"})
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(UsageError, match="not empty"):
        Run.create(tmp_path / "mine", CONFIG)
    assert os.listdir(tmp_path / "mine") == ["letter.txt"]


@pytest.mark.parametrize("change", [{"format": 99}, {"versions": {"rhucrl": "99.1.0"}}])
def test_a_run_of_another_version_is_refused(tmp_path, change):
    Run.create(tmp_path / "run", CONFIG).close()
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError, match="use that version or start a new run"):
        Run.open(tmp_path / "run")


def test_a_folder_without_a_run_or_with_a_cut_configuration_is_named(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        Run.open(tmp_path / "nowhere")
    Run.create(tmp_path / "run", CONFIG).close()
    damage(tmp_path / "run" / "config.json", "cut")
    with pytest.raises(UsageError, match=r"config\.json is damaged"):
        Run.open(tmp_path / "run")


@contextlib.contextmanager
def read_only(folder: Path):
    """A folder that this process may not write, also if it is root's (who then acts as nobody)."""
    mode, root = folder.stat().st_mode, os.geteuid() == 0
    folder.chmod(0o555)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(mode)


def test_a_read_only_folder_is_a_mistake_with_a_remedy(tmp_path):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Run.create(folder / "run", CONFIG).close()
        folder.chmod(0o755)
        with read_only(folder):
            with pytest.raises(UsageError, match=r"may not be written.*choose another folder"):
                Run.create(folder / "new", CONFIG)
            with pytest.raises(UsageError, match="may not be written"):
                save_tree(folder / "policy", state(1))
            assert Run.open(folder / "run").metrics() == []
        with read_only(folder / "run"), pytest.raises(UsageError, match="may not be written"):
            Run.create(folder / "run" / "inner", CONFIG)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="part of its path is a file"):
        Run.create(tmp_path / "file" / "run", CONFIG)


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "fsync", "mkdir"])
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, call):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 2)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        monkeypatch.setattr(os, call, full_disk)
        with pytest.raises(DiskError, match=r"disk is full.*make room"):
            run.save_checkpoint(3, state(3))
        if call != "mkdir":
            with pytest.raises(DiskError, match=r"disk is full"):
                run.append_metrics({"episode": 3})
        monkeypatch.undo()
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        play(run, 3, 3)
    assert len(Run.open(tmp_path / "run").metrics()) == 3


def test_tensorboard_is_written_when_asked(tmp_path):
    runs.ask_for_tensorboard(tmp_path / "run")
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 2)
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    with pytest.raises(UsageError, match="already holds a run"):
        runs.ask_for_tensorboard(tmp_path / "run")


# Kills. One process imports everything once and forks the victims, before JAX has started a thread.

VICTIM = """
import os, signal, sys, time
import numpy as np
from rhucrl.storage.runs import Run

EPISODES = 40

def step(x):
    return (x * 6364136223846793005 + 1442695040888963407) % 2**61

def victim(folder):
    like = {"x": 0, "w": np.zeros((300, 200), np.int64)}
    with (Run.open(folder) if os.path.exists(folder + "/config.json") else Run.create(folder, {})) as run:
        episode, tree, _ = run.load_checkpoint(like) or (0, like, {})
        run.truncate_metrics(episode)
        for episode in range(episode + 1, EPISODES + 1):
            assert (tree["w"] == tree["x"]).all()
            x = step(tree["x"] + episode)
            tree = {"x": x, "w": np.full((300, 200), x)}
            run.append_metrics({"episode": episode, "x": x})
            run.save_policy(tree, {"episode": episode})
            run.save_checkpoint(episode, tree)

for line in sys.stdin:
    folder, patience = line.split()
    child = os.fork()
    if child == 0:
        try:
            victim(folder)
        except BaseException:
            import traceback; traceback.print_exc(); os._exit(1)
        os._exit(0)
    if patience != "forever":
        time.sleep(float(patience))
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_run_killed_at_any_moment_resumes_to_the_same_bytes(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forker:

        def launch(name: str, patience: float | str) -> int:
            print(tmp_path / name, patience, file=forker.stdin, flush=True)
            return int(forker.stdout.readline())

        assert launch("warm", 0.0) == -signal.SIGKILL
        start = time.monotonic()
        assert launch("whole", "forever") == 0
        random, longest = np.random.default_rng(0), (time.monotonic() - start) / 8
        kills = runs_done = 0
        while kills < 30:
            code = launch(f"killed-{runs_done}", random.uniform(0, longest))
            assert code in (0, -signal.SIGKILL)
            kills, runs_done = kills + (code != 0), runs_done + (code == 0)
        assert launch(f"killed-{runs_done}", "forever") == 0
        forker.stdin.close()
    for folder in tmp_path.glob("killed-*"):
        assert contents(folder) == contents(tmp_path / "whole")


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which holds the number of the process."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "lock"}
