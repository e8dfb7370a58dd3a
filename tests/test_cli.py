"""The command line: quick help, mistakes in one line with a remedy, exit codes, processes side by side."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from rhucrl.cli import main as cli
from rhucrl.config import TrainConfig
from rhucrl.errors import DiskError, UsageError, unknown
from rhucrl.options import Ensemble, LookAhead, options_of
from rhucrl.runtime.processes import run_side_by_side
from rhucrl.runtime.progress import Progress
from rhucrl.storage.runs import Run


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rhucrl", *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def training(monkeypatch):
    """A training that does what a test puts into it."""
    module = SimpleNamespace(train=lambda *_, **__: None, resume=lambda *_, **__: None, env_named=lambda *_: None)
    monkeypatch.setitem(sys.modules, "rhucrl.training.loop", module)
    monkeypatch.setattr("rhucrl.training.loop", module, raising=False)
    monkeypatch.setattr("rhucrl.cli.train.keep_compiled", lambda: None)
    return module


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["train", "--help"], ["list", "algos"], ["train", "--algo", "x"]]
)
def test_help_and_mistakes_are_answered_without_jax(arguments):
    code = (
        "import sys, rhucrl.cli.main\n"
        "try: rhucrl.cli.main.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert not {'jax', 'numpy', 'matplotlib', 'gymnasium'} & set(sys.modules), 'heavy imports'"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_is_told():
    assert run("--version").stdout == f"rhucrl {version('rhucrl')}\n"


def test_every_option_is_explained():
    text = run("train", "--setting", "action", "--help").stdout
    for name in {*options_of(TrainConfig), *options_of(Ensemble), *options_of(LookAhead)} - {
        "env",
        "seed",
        "parameters",
        "forces",
    }:
        assert re.search(rf"--{name.replace('_', '-')}[ ,]", text), name
    assert "TensorBoard" in text
    assert "--parameters" in run("train", "hopper", "--setting", "parameter", "--help").stdout
    assert all(command in run("--help").stdout for command in cli.COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "did you mean 'train'?"),
        (["train", "--algo", "rhucrl"], "did you mean 'rh-ucrl'?"),
        (["train", "--settin", "none"], "did you mean --setting?"),
        (["train", "--setting", "adverserial"], "did you mean 'adversarial'?"),
        (["train", "--setting", "force"], "did you mean 'adversarial'?"),
        (["oracle", "--setting", "Mass"], "did you mean 'parameter'?"),
        (["train", "--episodes", "-3"], "--episodes"),
        (["train", "--episodes", "many"], "--episodes"),
        (["train", "--seeds", "1", "1"], "different numbers"),
        (["list", "algo"], "did you mean 'algos'?"),
        (["resume"], "RUN"),
        (["resume", "nowhere"], "nowhere holds no run"),
        (["attack", "x", "--budget", "quik"], "did you mean 'quick'?"),
        (["oracle", "--strength", "1.5"], "outside [0, 1)"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, told, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert told in err


def test_a_mistake_ends_the_process_with_2_and_without_a_traceback():
    done = run("resume", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("failure", "code", "told"),
    [
        (UsageError("wrong: do this"), 2, "error: wrong: do this\n"),
        (DiskError("the disk is full: make room"), 1, "error: the disk is full: make room\n"),
        (KeyboardInterrupt(), 130, "stopped: nothing was saved\n"),
    ],
)
def test_exit_codes(failure, code, told, training, tmp_path, capsys):
    def fail(*_):
        raise failure

    training.train = fail
    assert cli.main(["train", "--run-dir", str(tmp_path / "run")]) == code
    assert capsys.readouterr().err == told


def test_bugs_keep_their_traceback(training, tmp_path):
    training.train = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", "--run-dir", str(tmp_path / "run")])


def test_train_hands_over_the_configuration_and_the_folder(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    training.train = lambda config, folder, progress: seen.append((config, folder, progress.total))
    assert cli.main(["train", "pendulum", "--seed", "3", "--strength", ".3", "--episodes", "7"]) == 0
    assert cli.main(["train", "--run-dir", "here", "--tensorboard"]) == 0
    assert seen[0] == (
        TrainConfig.preset(strength=0.3, episodes=7, seed=3),
        Path("runs/pendulum-adversarial-rh-ucrl/seed-3"),
        7,
    )
    assert seen[1][:2] == (TrainConfig.preset(), Path("here"))
    assert (tmp_path / "here" / "tensorboard").is_dir()


def test_an_environment_brings_its_defaults_wherever_it_stands(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    training.train = lambda config, folder, progress: seen.append(config)
    cli.main(["train", "hopper", "--width", "99", "--run-dir", "a"])
    cli.main(["train", "--width", "50", "hopper", "--run-dir", "b"])
    cli.main(["train", "--run-dir", "hopper"])
    cli.main(["train", "--tensorboard", "hopper", "--run-dir", "d"])
    cli.main(["train", "--no-layer-norm", "hopper", "--run-dir", "e"])
    cli.main(["train", "--run-dir=f", "hopper"])
    assert seen == [
        TrainConfig.preset("hopper", width=99),
        TrainConfig.preset("hopper", width=50),
        TrainConfig.preset(),
        TrainConfig.preset("hopper"),
        TrainConfig.preset("hopper", layer_norm=False),
        TrainConfig.preset("hopper"),
    ]


def test_stopping_says_how_to_go_on(training, tmp_path, capsys):
    def stopped(config, folder, progress):
        with Run.create(folder, config):
            raise KeyboardInterrupt

    training.train = stopped
    assert cli.main(["train", "--run-dir", str(tmp_path / "run")]) == 130
    assert f"`rhucrl resume {tmp_path / 'run'}` continues" in capsys.readouterr().err


def test_resume_warns_of_other_versions(training, tmp_path, capsys, monkeypatch):
    Run.create(tmp_path / "run", TrainConfig.preset()).close()
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"jax": "', '"jax": "0.0.'))
    seen = []
    training.resume = lambda folder, episodes, progress, **_: seen.append((folder, episodes, progress.total))
    assert cli.main(["resume", str(tmp_path / "run"), "--episodes", "50"]) == 0
    assert seen == [(tmp_path / "run", 50, 50)]
    assert "warning: the run began with jax 0.0." in capsys.readouterr().err


def test_several_seeds_become_commands_of_their_own(monkeypatch, capsys):
    seen = {}
    monkeypatch.setattr(
        "rhucrl.runtime.processes.run_side_by_side", lambda commands: seen.update(commands) or {"seed 2": 2}
    )
    options = ["--strength", "0.3", "--setting", "action", "--tensorboard"]
    assert cli.main(["train", "pendulum", "--seeds", "1", "2", "--run-dir", "d", *options]) == 2
    assert "seed 2" in capsys.readouterr().err
    for seed in (1, 2):
        command = cli._parse(seen[f"seed {seed}"][3:])
        assert command.seeds == (seed,)
        assert command.run_dir == Path(f"d/seed-{seed}")
        assert command.tensorboard
        assert command.configuration(0) == TrainConfig.preset(strength=0.3, setting="action")


def test_commands_run_side_by_side_each_on_its_core(capfd):
    # The core is given just after the start, hence the pause.
    code = "import os, sys, time; time.sleep(0.2); print(len(os.sched_getaffinity(0))); sys.exit(int(sys.argv[1]))"
    codes = run_side_by_side({f"job {i}": [sys.executable, "-c", code, str(i)] for i in range(4)})
    assert codes == {f"job {i}": i for i in range(4)}
    assert sorted(capfd.readouterr().out.splitlines()) == [f"job {i} | 1" for i in range(4)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reaches_every_command(how, tmp_path):
    job = (
        "import signal, sys, time, pathlib\n"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\n"
        "try: print('up', flush=True), time.sleep(60)\n"
        "except KeyboardInterrupt: pathlib.Path(sys.argv[1]).touch()"
    )
    parent = (
        "import sys; from rhucrl.runtime.processes import run_side_by_side\n"
        "run_side_by_side({name: [sys.executable, '-c', sys.argv[1], name] for name in sys.argv[2:]})"
    )
    files = [f"{tmp_path}/{core}" for core in os.sched_getaffinity(0)]
    process = subprocess.Popen(
        [sys.executable, "-c", parent, job, *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for _ in files:
        assert "up" in process.stdout.readline()
    process.send_signal(how)
    _, err = process.communicate(timeout=20)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(files)
    assert "KeyboardInterrupt" in err


def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch):
    clock, file = [0.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Progress(30, "pendulum", file) as progress:
        for n in range(1, 31):
            clock[0] += 1
            progress.update(n, f"return {-n}")
    lines = file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/30", "6/30", "11/30", "16/30", "21/30", "26/30", "30/30"]
    assert lines[0] == "pendulum  1/30  1 s  return -1"


def test_progress_on_a_terminal_is_a_bar(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(file, "isatty", lambda: True)
    with Progress(3, "[pendulum]", file) as progress:
        progress.update(3, "return [-1]")
    assert "[pendulum]" in file.getvalue()
    assert "3/3" in file.getvalue()


def test_unknown_names_without_a_near_one_list_all():
    assert str(unknown("setting", "zzz", ["none", "action"])) == "unknown setting 'zzz': choose from none, action"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--population", "7"], "--population is an option of --algo rap"),
        (["--algo", "ppo", "--population", "7"], "--population is an option of --algo rap"),
        (["--kernel", "linear"], "--kernel is an option of --model gp"),
        (["--algo", "sac", "--plan-steps", "7"], "--plan-steps is an option of --solver planner"),
        (["--algo", "rarl", "--random-episodes", "2"], "--random-episodes is no option of --algo rarl"),
        (["--algo", "sac", "--model", "gp"], "--model is no option of --algo sac"),
        (["--preset", "paper", "--solver", "planner"], "--preset paper has --solver actor-critic"),
        (["--algo", "sac", "--output-rule", "paper"], "--output-rule is no option of --algo sac"),
        (["--random-episodes", "5", "--episodes", "1"], "--random-episodes is 5; the run has 1 --episodes"),
        (["--beta", "nan"], "--beta is nan; it must be finite"),
        (["--learning-rate", "inf"], "--learning-rate is inf; it must be finite"),
        (["--discount", "2"], "--discount is 2; it must lie in [0, 1]"),
        (["--config", "nowhere.json"], "nowhere.json cannot be read"),
    ],
)
def test_an_option_that_does_not_apply_is_refused(arguments, told, capsys):
    assert cli.main(["train", "pendulum", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_help_shows_what_is_chosen_with_the_defaults_that_are_used():
    rarl = run("train", "hopper", "--algo", "rarl", "--help").stdout
    assert "--rollouts" in rarl and not {"--heads", "--beta", "--population", "--reward", "--model"} & set(rarl.split())
    assert "(default: 1000)" in rarl
    assert "--kernel-fit" in run("train", "--model", "gp", "--help").stdout
    assert run("train", "--alg", "x", "--help").returncode == 0


@pytest.mark.parametrize("name", ["options.toml", "options.json", "run.json"])
def test_options_come_from_a_file_and_what_is_typed_comes_before_them(name, training, tmp_path):
    config, seen = TrainConfig.preset("hopper", heads=7, batch=9, seed=5), []
    training.train = lambda config, folder, progress: seen.append(config)
    texts = {
        "options.toml": 'env = "hopper"\nbatch = 9\nseed = 5\n[model]\nkind = "ensemble"\nheads = 7\n',
        "options.json": json.dumps(config.tree()),
        "run.json": json.dumps({"format": 1, "versions": {}, "config": config.tree()}),
    }
    (tmp_path / name).write_text(texts[name])
    given = ["--config", str(tmp_path / name), "--run-dir"]
    assert cli.main(["train", *given, str(tmp_path / "a")]) == 0
    assert cli.main(["train", *given, str(tmp_path / "b"), "--heads", "3"]) == 0
    assert seen == [config, TrainConfig.preset("hopper", heads=3, batch=9, seed=5)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "holds no options"), ("{", "is no JSON"), ('{"hedas": 3}', "did you mean 'heads'?"),
        ('{"model": {"kind": "ensmble"}}', "did you mean 'ensemble'?"), ('{"env": 3}', "env is 3"),
        ('{"model": {"kind": "ensemble", "kernel": "linear"}}', "unknown option of ensemble 'kernel'"),
        ('{"model": {"kind": [1]}}', "unknown model '[1]'"), ('{"solver": [1]}', "unknown solver '[1]'"),
        ('{"heads": "many"}', "--heads is 'many'; it must be a whole number"), ("[" * 100_000, "is no JSON"),
    ],
)  # fmt: skip
def test_a_file_of_options_is_checked(text, told, tmp_path, capsys):
    (tmp_path / "options.json").write_text(text)
    assert cli.main(["train", "--config", str(tmp_path / "options.json")]) == 2
    assert told in capsys.readouterr().err


def test_a_dry_run_prints_the_tree_and_its_cost_and_makes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "inverted-pendulum", "--heads", "7", "--dry-run"]) == 0
    tree, _, rest = capsys.readouterr().out.rpartition("}\n")
    assert TrainConfig.of_tree(json.loads(tree + "}")) == TrainConfig.preset("inverted-pendulum", heads=7)
    assert "CPU time" in rest and "minutes" in rest and "memory" in rest
    assert [*tmp_path.iterdir()] == []
