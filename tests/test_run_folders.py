"""Folders of runs: finding them, going on with them by the command that began them, and resuming all of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rhucrl.cli import main as cli
from rhucrl.config import TrainConfig
from rhucrl.errors import UsageError
from rhucrl.storage.run_folders import LEVELS, find_runs, groups_of, names_of, same_run, stored_run
from rhucrl.storage.runs import Run


@pytest.fixture
def training(monkeypatch):
    """What `train` and `resume` were asked for, and not done."""
    calls = []
    module = SimpleNamespace(
        calls=calls,
        train=lambda config, folder, progress: calls.append(("train", folder, config.seed)),
        resume=lambda folder, episodes, progress, **_: calls.append(("resume", folder, episodes)),
        env_named=lambda *_: None,
    )
    monkeypatch.setitem(sys.modules, "rhucrl.training.loop", module)
    monkeypatch.setattr("rhucrl.training.loop", module, raising=False)
    monkeypatch.setattr("rhucrl.cli.train.keep_compiled", lambda: None)
    return module


@pytest.fixture
def started(monkeypatch):
    """The commands that were to run side by side."""
    seen = {}
    monkeypatch.setattr("rhucrl.runtime.processes.run_side_by_side", lambda commands: seen.update(commands) or {})
    return seen


def make_run(folder: Path, done: int, **options) -> Path:
    """A run's folder with so many episodes done."""
    with Run.create(folder, TrainConfig.preset(**options)) as run:
        for episode in range(done):
            run.save_checkpoint(episode, {"x": 1.0})
            run.save_policy({"x": 1.0})
    return folder


def test_runs_are_found_in_the_order_of_their_numbers(tmp_path):
    for name in ("b/seed-10", "b/seed-2", "a", "a/attacks/inside", ".hidden/run", "deep/1/2", "deeper/1/2/3"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").touch()
    assert LEVELS == 3
    assert names_of(find_runs(tmp_path), tmp_path) == ["a", "b/seed-2", "b/seed-10", "deep/1/2"]
    assert find_runs(tmp_path / "a") == [tmp_path / "a"]
    assert names_of([tmp_path / "a"], tmp_path / "a") == ["a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty holds no run \(there is no config.json in it"):
        find_runs(tmp_path / "empty")
    with pytest.raises(UsageError, match="nowhere holds no run"):
        find_runs(tmp_path / "nowhere")


def test_runs_are_grouped_by_all_options_but_the_seed():
    rows = [TrainConfig.preset(seed=0), TrainConfig.preset(seed=1, algo="h-ucrl", beta=0.5), TrainConfig.preset(seed=7)]
    configs = [row.tree() for row in rows]
    assert groups_of(configs) == {"algo rh-ucrl": [0, 2], "algo h-ucrl": [1]}
    assert groups_of(configs[::2]) == {"": [0, 1]}
    assert groups_of([{"algo": "a", "beta": 1}, {"algo": "a", "beta": 2}, {"algo": "b", "beta": 2}]) == {
        "algo a, beta 1": [0],
        "algo a, beta 2": [1],
        "algo b, beta 2": [2],
    }


def test_a_run_is_the_same_if_all_of_its_options_are(tmp_path):
    options = {"episodes": 3, "model": "gp", "lengthscale": (1.0, 2.0)}
    make_run(tmp_path / "run", 2, **options)
    assert same_run(tmp_path / "none", TrainConfig.preset()) is None
    run = same_run(tmp_path / "run", TrainConfig.preset(**options))
    assert (run.done, run.progress, run.is_finished(), run.is_finished(2)) == (2, "2 of 3 episodes", False, True)
    shutil.rmtree(tmp_path / "run" / "policy")
    assert not run.is_finished(2)  # resume shall write it again
    for other, told in [
        ({"strength": 0.3, "width": 9}, "--strength None, not 0.3: choose another --run-dir$"),
        ({"episodes": 5}, "--episodes 3, not 5: .* --run-dir, or prolong it: rhucrl resume .*run --episodes 5"),
        ({"lengthscale": (1.0,)}, "--lengthscale"),
    ]:
        with pytest.raises(UsageError, match=told):
            same_run(tmp_path / "run", TrainConfig.preset(**{**options, **other}))


@pytest.mark.parametrize("done", [None, 0, 1, 2])
def test_the_same_command_goes_on(done, training, tmp_path, capsys):
    run = tmp_path / "run"
    if done is not None:
        make_run(run, done, episodes=2)
    assert cli.main(["train", "--episodes", "2", "--run-dir", str(run)]) == 0
    told = capsys.readouterr().out
    if done is None:
        assert training.calls == [("train", run, 0)]
    elif done < 2:
        assert training.calls == [("resume", run, None)]
        assert f"{done} of 2 episodes: going on" in told
    else:
        assert training.calls == []
        assert f"is finished, 2 of 2 episodes: `rhucrl resume {run} --episodes N` prolongs it" in told


def test_another_command_is_refused(training, started, tmp_path, capsys):
    make_run(tmp_path / "d" / "seed-1", 1, episodes=2)
    for given in (
        ["--seeds", "1", "--run-dir", f"{tmp_path}/d/seed-1"],
        ["--seeds", "0", "1", "--run-dir", f"{tmp_path}/d"],
    ):
        assert cli.main(["train", "--episodes", "2", "--strength", ".3", *given]) == 2
        assert "seed-1 holds a run with --strength None, not 0.3" in capsys.readouterr().err
    assert cli.main(["train", "--seeds", "0", "1", "--run-dir", f"{tmp_path}/d/seed-1"]) == 2
    assert "is a run itself" in capsys.readouterr().err
    assert (training.calls, started) == ([], {})


def test_several_seeds_go_on_where_they_were(started, tmp_path, capsys):
    make_run(tmp_path / "seed-0", 2, episodes=2)
    make_run(tmp_path / "seed-1", 1, episodes=2, seed=1)
    assert cli.main(["train", "--episodes", "2", "--seeds", "0", "1", "2", "--run-dir", str(tmp_path)]) == 0
    assert list(started) == ["seed 1", "seed 2"]
    assert "seed-0 is finished" in capsys.readouterr().out


def test_tensorboard_may_be_asked_for_when_going_on(training, tmp_path):
    make_run(tmp_path / "run", 1, episodes=2)
    assert cli.main(["train", "--episodes", "2", "--run-dir", str(tmp_path / "run"), "--tensorboard"]) == 0
    assert (tmp_path / "run" / "tensorboard").is_dir()
    assert training.calls == [("resume", tmp_path / "run", None)]


def test_the_lock_still_refuses(tmp_path, capsys):
    with Run.create(tmp_path / "run", TrainConfig.preset(episodes=2)):
        assert cli.main(["train", "--episodes", "2", "--run-dir", str(tmp_path / "run")]) == 2
    assert "is in use by process" in capsys.readouterr().err


def test_all_runs_of_a_folder_are_resumed(started, training, tmp_path, capsys):
    runs = [make_run(tmp_path / f"seed-{seed}", done, episodes=2, seed=seed) for seed, done in enumerate((1, 2, 0))]
    assert cli.main(["resume", str(tmp_path)]) == 0
    assert {name: command[3:] for name, command in started.items()} == {
        "seed-0": ["resume", str(runs[0])],
        "seed-2": ["resume", str(runs[2])],
    }
    assert f"{runs[1]} is finished, 2 of 2 episodes" in capsys.readouterr().out
    assert cli.main(["resume", str(tmp_path), "--episodes", "3"]) == 0
    assert [command[3:] for command in started.values()] == [["resume", str(run), "--episodes", "3"] for run in (
        runs[0], runs[2], runs[1])]  # fmt: skip
    started.clear()
    assert cli.main(["resume", str(tmp_path), "--episodes", "1"]) == 2
    assert "was asked for 2 already" in capsys.readouterr().err
    assert started == {}
    assert training.calls == []
    for run in runs[1:]:
        shutil.rmtree(run)
    assert cli.main(["resume", str(tmp_path)]) == 0
    assert training.calls == [("resume", runs[0], None)]  # one run is no crowd


def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path, capsys):
    """Real training: what an interrupt in the second episode leaves behind."""
    asked = ["train", "inverted-pendulum", "--algo", "sac", "--episodes", "2", "--horizon", "20", "--run-dir"]
    assert cli.main([*asked, str(tmp_path / "run")]) == 0
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "000001")
    assert stored_run(tmp_path / "run").progress == "1 of 2 episodes"
    assert cli.main([*asked, str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics
    assert "1 of 2 episodes: going on" in capsys.readouterr().out
    assert stored_run(tmp_path / "run").is_finished()
