"""Robust model-based reinforcement learning: learn policies that hold against an adversary, and attack policies."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
from tyro.conf import Positional, Suppress, arg

from rhucrl import __version__
from rhucrl.algorithms import EVERY
from rhucrl.cli.attack import Attack, Evaluate, RunFolder
from rhucrl.cli.bench import Bench
from rhucrl.cli.completion import Completion
from rhucrl.cli.envs import CheckEnv, Video
from rhucrl.cli.mistakes import one_line
from rhucrl.cli.theory import Theory
from rhucrl.config import Speed, TrainConfig, preset
from rhucrl.envs import ENVIRONMENTS, HORIZON, NAMES, STRENGTH, Mixture, Reward, Scope, Setting
from rhucrl.errors import DiskError, SimulationError, UsageError, unknown
from rhucrl.runtime import interrupts
from rhucrl.runtime.tables import print_table
from rhucrl.runtime.terminal import readable_help

# JAX and all that needs it is imported by the commands themselves: `--help` and mistakes are answered at once.

SETTINGS: dict[Setting, str] = {
    "none": "nothing",
    "adversarial": "forces on a robot's bodies; the pendulum's gravity and mass",
    "action": "a share of the agent's action (--mixture noisy), or all of it now and then (probabilistic)",
    "parameter": "a body's mass, once per episode",
}


@dataclass(frozen=True)
class Train(TrainConfig):
    """Learn a policy. Every episode is saved: after a stop, the same command or `rhucrl resume RUN` goes on."""

    env: Annotated[str, Positional, arg(metavar="ENV")] = TrainConfig.env
    """The environment; `rhucrl list envs` shows all."""
    seed: Suppress[int] = 0
    seeds: Annotated[tuple[int, ...], arg(aliases=["--seed"])] = (0,)
    """Random seeds, one run each; several run side by side, one per core."""
    run_dir: Path | None = None
    """The run's folder; of several seeds, the folder above theirs. Default: runs/ENV-SETTING-ALGO."""

    speed: Speed = "fast"
    """Robots: the numbers that the results in docs/robots.md were made with (fast), or the paper's two updates per step
    with networks of 200 (full), which takes much longer. Options of their own come before both."""
    profile: bool = False
    """Say at the end which share of the run went into what."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too."""

    def __post_init__(self) -> None:
        """Nothing: the values are checked when they become a TrainConfig."""

    def run(self) -> int:
        configs = {seed: self._config(seed) for seed in self.seeds}
        if len(configs) != len(self.seeds) or not configs:
            raise UsageError(f"--seeds needs different numbers, got {' '.join(map(str, self.seeds)) or 'none'}")
        folders = {seed: self._folder(config) for seed, config in configs.items()}
        from rhucrl.storage.run_folders import RECORD, left_to_do, same_run

        if len(configs) > 1 and self.run_dir and (self.run_dir / RECORD).exists():
            raise UsageError(f"{self.run_dir} is a run itself: choose another --run-dir for several seeds")
        stored = {seed: same_run(folder, configs[seed]) for seed, folder in folders.items()}
        left = left_to_do(stored)
        if len(configs) > 1:
            return self._run_each({seed: folders[seed] for seed in left})
        for seed in left:
            if run := stored[seed]:
                print(f"{folders[seed]} holds this run, {run.progress}: going on", flush=True)
            _train(configs[seed], folders[seed], self.tensorboard, self.profile, begun=run is not None)
        return 0

    def _config(self, seed: int) -> TrainConfig:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(TrainConfig)}
        values["seed"] = seed
        return TrainConfig(**values | self._own_place())

    def _own_place(self) -> dict[str, Any]:
        """Of an environment of one's own: what it has chosen itself, held against what was asked for."""
        if ":" not in self.env:
            return {}
        from rhucrl.envs import imported
        from rhucrl.envs.wrap import adopt

        place = (self.setting, self.strength, self.scope, self.mixture, self.horizon)
        return adopt(self.env, imported(self.env), *place, plain="adversarial").game.options()

    def _folder(self, config: TrainConfig) -> Path:
        if self.run_dir and len(self.seeds) == 1:
            return self.run_dir
        name = re.sub(r"[^\w.-]+", "-", f"{config.env}-{config.setting}-{config.algo}")
        return (self.run_dir or Path("runs") / name) / f"seed-{config.seed}"

    def _run_each(self, folders: dict[int, Path]) -> int:
        interrupts.advise(lambda: _how_to_resume(*folders.values()))
        start = [sys.executable, "-m", "rhucrl", "train", self.env, *self._flags()]
        commands = {
            f"seed {seed}": [*start, "--seeds", str(seed), "--run-dir", str(folder)] for seed, folder in folders.items()
        }
        return _side_by_side(commands)

    def _flags(self) -> list[str]:
        """The options that differ from their defaults, as they would be typed."""
        flags = [f"--{name}" for name in ("tensorboard", "profile") if getattr(self, name)] + ["--speed", self.speed]
        own = {field.name for field in dataclasses.fields(TrainConfig)} - {"env", "seed"}
        for field in dataclasses.fields(self):
            value, option = getattr(self, field.name), field.name.replace("_", "-")
            if field.name not in own or value == field.default:
                continue
            if isinstance(value, bool):
                flags.append(f"--{option}" if value else f"--no-{option}")
            else:
                flags += [f"--{option}", *map(str, value if isinstance(value, tuple) else [value])]
        return flags


@dataclass(frozen=True)
class Resume:
    """Continue a stopped run from its last checkpoint, to the same numbers as if it had not been stopped.

    Of a folder of runs, all that are not finished continue side by side, one per core.
    """

    run_dir: RunFolder
    """The run's folder, or one of several runs."""
    episodes: int | None = None
    """Go on to this number of episodes instead of the run's own."""
    env: str | None = None
    """module:make of the environment, where it is one of your own."""
    trust: bool = False
    """Import the environment by the name in the run's folder, which runs its code: only for runs that you trust."""

    def run(self) -> int:
        from rhucrl.storage.run_folders import find_runs, left_to_do, names_of, stored_run

        folders = find_runs(self.run_dir)
        if len(folders) == 1:
            _resume(folders[0], self.episodes, self.env, self.trust)
            return 0
        runs = dict(zip(names_of(folders, self.run_dir), map(stored_run, folders), strict=True))
        for run in runs.values():
            if self.episodes and self.episodes < run.episodes:
                raise UsageError(f"--episodes is {self.episodes}; {run.folder} was asked for {run.episodes} already")
        return _side_by_side({name: self._command(runs[name].folder) for name in left_to_do(runs, self.episodes)})

    def _command(self, folder: Path) -> list[str]:
        given = {"--episodes": self.episodes, "--env": self.env}
        options = [str(part) for option, value in given.items() if value is not None for part in (option, value)]
        trusted = ["--trust"] if self.trust else []
        return [sys.executable, "-m", "rhucrl", "resume", str(folder), *options, *trusted]


@dataclass(frozen=True)
class List:
    """Show what there is to choose from."""

    kind: Annotated[Literal["algos", "envs", "settings"], Positional]
    """What to show."""

    def run(self) -> int:
        if self.kind == "algos":
            print_table(None, ("algorithm", "meaning"), [(name, row.summary) for name, row in EVERY.items()])
        elif self.kind == "envs":
            rows = [(name, ENVIRONMENTS[name], f"{HORIZON[name]}") for name in NAMES]
            print_table(None, ("environment", "meaning", "steps"), rows)
        else:
            strengths = {name: [f"{STRENGTH[family][name]:g}" for family in STRENGTH] for name in SETTINGS}
            rows = [(name, text, *strengths[name]) for name, text in SETTINGS.items()]
            print_table(None, ("setting", "what the adversary chooses", "pendulum's strength", "robots'"), rows)
        return 0


@dataclass(frozen=True)
class Demo:
    """Learn a robust and a plain policy on the pendulum, attack both, and write a page about it (5 minutes)."""

    output: Path = Path("demo")
    """The folder for the page."""

    def run(self) -> int:
        from rhucrl.experiments.demo import demo

        demo(self.output)
        return 0


@dataclass(frozen=True)
class OracleCommand:
    """Compute the true value of the pendulum game: the return that no policy can beat in the worst case."""

    setting: Setting = "adversarial"
    """What the adversary may do; `rhucrl list settings` explains them."""
    strength: float | None = None
    """The adversary's strength in [0, 1); by default the setting's."""
    scope: Scope | None = None
    """Whether the adversary acts at every step or once per episode; by default what the setting asks for."""
    mixture: Mixture | None = None
    """In the action setting: noisy (the default) or probabilistic."""
    reward: Reward = "dense"
    """The pendulum's reward."""
    action_cost: float | None = None
    """Cost of the squared action; by default the reward's."""
    horizon: int | None = None
    """Steps per episode; by default 200."""

    def run(self) -> int:
        from rhucrl.envs import make

        game: Any = make("pendulum", **dataclasses.asdict(self)).game
        from rhucrl.attacks.oracle import solve

        _keep_compiled()
        print(f"{solve(game).value:.1f}")
        return 0


COMMANDS = {
    "train": Train,
    "resume": Resume,
    "evaluate": Evaluate,
    "attack": Attack,
    "list": List,
    "oracle": OracleCommand,
    "check-env": CheckEnv,
    "video": Video,
    "demo": Demo,
    "bench": Bench,
    "theory": Theory,
    "completion": Completion,
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Exit codes: 0 done, 1 failure, 2 bad usage, 130 and 143 stopped by Ctrl-C and SIGTERM.

    As an entry (`rhucrl.__main__`) also 141, the output's reader has left: `rhucrl list algos | head -1`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    interrupts.expect(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            if arguments == ["--version"]:
                print(f"rhucrl {__version__}")
                return 0
            return _parse(arguments).run()
    except KeyboardInterrupt:
        return interrupts.stopped()
    except (UsageError, DiskError, SimulationError) as error:
        if interrupts.received():  # and on its way the interrupt became a mistake
            return interrupts.stopped()
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _parse(arguments: list[str]) -> Any:
    if not arguments:
        arguments = ["--help"]
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise unknown("command", arguments[0], COMMANDS)
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told), readable_help():
            return tyro.extras.subcommand_cli_from_dict(
                _with_presets(arguments), prog="rhucrl", description=__doc__, args=arguments, sort_subcommands=False
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(one_line(told.getvalue())) from None


def _with_presets(arguments: list[str]) -> dict[str, Any]:
    """The commands; `train ENV` has the defaults of ENV, so that its --help shows them."""
    flags = [name for name, hint in get_type_hints(Train).items() if hint is bool]
    alone = {"-h", "--help", *(f"--{no}{name}" for name in flags for no in ("", "no_"))}

    def takes_next(word: str) -> bool:
        return word.startswith("-") and "=" not in word and word[:2] + word[2:].replace("-", "_") not in alone

    words = [word for before, word in itertools.pairwise(arguments) if not takes_next(before)]
    env = next((word for word in words if word in ENVIRONMENTS or ":" in word), TrainConfig.env)
    parts = [part for word in arguments for part in word.split("=", 1)]
    given = {before: word for before, word in itertools.pairwise(parts) if before in ("--algo", "--speed", "--solver")}
    speed: Any = given.get("--speed", Train.speed)
    numbers = preset(env, given.get("--algo", TrainConfig.algo), speed, given.get("--solver"))
    if arguments[0] != "train" or not numbers:
        return COMMANDS
    hints = get_type_hints(TrainConfig)
    fields = [(name, hints[name], value) for name, value in numbers.items()]
    if ":" in env:  # it may have chosen its setting itself
        fields.append(("setting", Setting | None, None))
    return COMMANDS | {"train": dataclasses.make_dataclass("Train", fields, bases=(Train,), frozen=True)}


def _train(config: TrainConfig, folder: Path, tensorboard: bool, profiled: bool, begun: bool = False) -> None:
    """A new run, or the rest of one that has `begun`."""
    from rhucrl.runtime.progress import Progress
    from rhucrl.storage.runs import ask_for_tensorboard
    from rhucrl.training import loop as training

    _keep_compiled()
    if tensorboard:
        ask_for_tensorboard(folder, begun)
    if begun:
        _resume(folder, trust=True)  # the environment was named by whoever typed the command
    else:
        label = f"{config.algo} {config.env} seed {config.seed}"
        with _resumable(folder), Progress(config.episodes, label) as progress:
            training.train(config, folder, progress)
    if profiled:
        _print_profile(folder)
    print(f"{folder} holds the run; `rhucrl evaluate {folder}` plays its policy")


def _resume(folder: Path, episodes: int | None = None, env: str | None = None, trust: bool = False) -> None:
    from rhucrl.runtime.progress import Progress
    from rhucrl.storage.runs import Run
    from rhucrl.training import loop as training

    run = Run.open(folder)
    for name, (was, now) in run.changed_versions().items():
        _show_warning(f"the run began with {name} {was}, this is {now}: numbers may differ")
    _keep_compiled()
    label = f"{run.config['algo']} {run.config['env']}"
    with _resumable(folder), Progress(episodes or run.config["episodes"], label) as progress:
        place = training.env_named(run.config, env)
        training.resume(folder, episodes=episodes, progress=progress, env=place, trust=trust)


def _side_by_side(commands: dict[str, list[str]]) -> int:
    """Run them, one per core; the largest exit code."""
    from rhucrl.runtime.processes import run_side_by_side

    failed = {name: code for name, code in run_side_by_side(commands).items() if code}
    for name, code in failed.items():
        print(f"{name} ended with exit code {code}; its message is above", file=sys.stderr)
    return max(failed.values(), default=0)


def _print_profile(folder: Path) -> None:
    from rhucrl.runtime.timing import profile
    from rhucrl.storage.runs import Run
    from rhucrl.storage.trees import dump

    spent = profile(Run.open(folder).timing())
    total = sum(spent.values())
    (folder / "profile.json").write_bytes(dump({name: round(seconds, 3) for name, seconds in spent.items()}, 1))
    rows = [(name, f"{seconds:.1f}", f"{seconds / total:.1%}") for name, seconds in spent.items()]
    print_table("where the CPU seconds went", ("phase", "seconds", "share"), rows)


def _keep_compiled() -> None:
    from rhucrl.runtime.compilation import enable_cache

    enable_cache()


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    interrupts.advise(lambda: _how_to_resume(folder))
    yield


def _how_to_resume(*folders: Path) -> str:
    commands = [f"`rhucrl resume {shlex.quote(str(at))}`" for at in folders if (at / "config.json").exists()]
    if not commands:
        return "nothing was saved"
    return f"{', '.join(commands)} {'continues' if len(commands) == 1 else 'continue'}"


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    from rhucrl.__main__ import main as entry

    sys.exit(entry())
