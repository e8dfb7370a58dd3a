"""`rhucrl train` and `rhucrl resume`."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, Suppress, arg

from rhucrl.cli.attack import RunFolder
from rhucrl.cli.fields import field_texts
from rhucrl.config import TrainConfig, every_option, flat, options_with
from rhucrl.envs import ACTION_COST, HORIZON, PLACE, STRENGTH
from rhucrl.errors import UsageError
from rhucrl.options import MODELS, PARTS, SOLVERS, options_of
from rhucrl.presets import Preset
from rhucrl.runtime import interrupts
from rhucrl.runtime.tables import print_table

LARGEST = 1_000_000  # bytes of a configuration file


@dataclass(frozen=True)
class TrainCommand:
    """Learn a policy. Every episode is saved: after a stop, the same command or `rhucrl resume RUN` goes on.

    Options are those of the environment, and of the algorithm, the model and the solver that are chosen:
    `rhucrl train hopper --algo rarl --help` shows the ones of RARL, with the defaults that will be used.
    """

    env: Annotated[str, Positional, arg(metavar="ENV")] = TrainConfig.env
    """The environment; `rhucrl list envs` shows all."""
    seeds: Annotated[tuple[int, ...], arg(aliases=["--seed"])] = (0,)
    """Random seeds, one run each; several run side by side, one per core."""
    run_dir: Path | None = None
    """The run's folder; of several seeds, the folder that holds one for each. Default: runs/ENV-SETTING-ALGO."""
    config: Path | None = None
    """A JSON or TOML file with options, such as a run's config.json; what is typed comes before it."""
    dry_run: bool = False
    """Print all options as they would be used, and what the run would cost; train nothing."""

    preset: Preset = "standard"
    """What options begin with: numbers chosen for the environment (standard), or what the paper states, with its solver
    and its output rule (paper). Options that are typed come before both."""
    profile: bool = False
    """Say at the end which share of the run went into what."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too."""
    typed: Suppress[tuple[str, ...]] = ()
    """The words of the command line."""

    def run(self) -> int:
        seeds = self._seeds()
        if len({*seeds}) != len(seeds) or not seeds:
            raise UsageError(f"--seeds needs different numbers, got {' '.join(map(str, seeds)) or 'none'}")
        configs = {seed: self.configuration(seed) for seed in seeds}
        folders = {seed: self._folder(config) for seed, config in configs.items()}
        if self.dry_run:
            return _print_plan(configs[seeds[0]], folders)
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

    def configuration(self, seed: int, own: bool = True) -> TrainConfig:
        """What was typed, over what the file says, over the presets. `own`: environments of one's own are asked."""
        options = {**self._of_file(), **self.given(), "seed": seed}
        options.setdefault("env", self.env)
        place = self._own_place(options) if own and ":" in options["env"] else {}
        return TrainConfig.preset(**{"preset": self.preset, **options, **place})

    def given(self) -> dict[str, Any]:
        """The options that were typed: a word that begins with two dashes is always a name."""
        words = {
            word.split("=")[0][2:].replace("-", "_").removeprefix("no_") for word in self.typed if word[:2] == "--"
        }
        env = {"env": self.env} if self.env in self.typed else {}
        return env | {name: getattr(self, name) for name in OPTIONS if name in words}

    def _seeds(self) -> tuple[int, ...]:
        typed = any(word.split("=")[0] in ("--seeds", "--seed") for word in self.typed)
        return self.seeds if typed else (self._of_file().get("seed", self.seeds[0]),)

    def _of_file(self) -> dict[str, Any]:
        return read_options(self.config) if self.config else {}

    def _own_place(self, options: dict[str, Any]) -> dict[str, Any]:
        """Of an environment of one's own: what it has chosen itself, held against what was asked for."""
        from rhucrl.envs import imported
        from rhucrl.envs.wrap import adopt

        place = [options.get(name) for name in PLACE]
        return adopt(options["env"], imported(options["env"]), *place, plain="adversarial").game.options()

    def _folder(self, config: TrainConfig) -> Path:
        if self.run_dir and len(self._seeds()) == 1:
            return self.run_dir
        name = re.sub(r"[^\w.-]+", "-", f"{config.env}-{config.setting}-{config.algo}")
        return (self.run_dir or Path("runs") / name) / f"seed-{config.seed}"

    def _run_each(self, folders: dict[int, Path]) -> int:
        interrupts.advise(lambda: _how_to_resume(*folders.values()))
        start = [sys.executable, "-m", "rhucrl", "train", self.env, *self._flags()]
        own = {f"seed {seed}": ["--seeds", str(seed), "--run-dir", str(at)] for seed, at in folders.items()}
        return _side_by_side({name: [*start, *options] for name, options in own.items()})

    def _flags(self) -> list[str]:
        """What was typed, again."""
        flags = [f"--{name}" for name in ("tensorboard", "profile") if getattr(self, name)] + ["--preset", self.preset]
        flags += ["--config", str(self.config)] if self.config else []
        for name, value in self.given().items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                flags.append(f"--{option}" if value else f"--no-{option}")
            elif name != "env":
                flags += [f"--{option}", *map(str, value if isinstance(value, tuple) else [value])]
        return flags


def read_options(path: Path) -> dict[str, Any]:
    """The options in a JSON or TOML file: a tree, its parts by their names on the command line, or a run's record."""
    import json
    import tomllib

    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} has more than {LARGEST} bytes: that is no configuration")
        text = path.read_text()
        record = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check --config") from None
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise UsageError(f"{path} is no {kind}: {str(error).splitlines()[0]}") from None
    if isinstance(record, dict) and {"format", "config"} <= {*record}:
        record = record["config"]
    if not isinstance(record, dict):
        raise UsageError(f'{path} holds no options: write an object such as {{"env": "hopper", "heads": 7}}')
    options = flat(record)
    if not isinstance(options.get("env", ""), str):
        raise UsageError(f"{path}: env is {options['env']!r}; it must be a text")
    return {name: value for name, value in options.items() if value is not None}


def command_with(options: dict[str, tuple[Any, Any, str]]) -> type[TrainCommand]:
    """`train` with these options: their types, defaults and texts."""
    fields = [(name, Annotated[hint, arg(help=text)], default) for name, (hint, default, text) in options.items()]
    made = dataclasses.make_dataclass("Train", fields, bases=(TrainCommand,), frozen=True)
    made.__doc__, made.__module__ = TrainCommand.__doc__, __name__
    return made


def _place() -> dict[str, tuple[Any, Any, str]]:
    """The options of every run, and which model and solver it has."""
    texts, top = field_texts(TrainConfig), options_of(TrainConfig)
    place = {name: (its.hint, its.default, texts[name]) for name, its in top.items() if name not in ("env", "seed")}
    model = (
        "A learned model, an ensemble or (small systems) a Gaussian process, or the true dynamics (to test the solver)."
    )
    solver = "Candidates and look-ahead (small games), networks (robots), or plans; by default the environment's."
    kinds: list[Any] = [Literal[tuple(MODELS)], Literal[tuple(SOLVERS)]]
    return place | {"model": (kinds[0], "ensemble", model), "solver": (kinds[1] | None, None, solver)}


def _every() -> dict[str, tuple[Any, Any, str]]:
    """The options of everything: what is typed may be any of them, and is then held against what is chosen."""
    found = _place()
    for flag, (kind, *_) in every_option().items():
        its = options_of(kind)[flag]
        found[flag] = its.hint, its.default, field_texts(kind)[its.field]
    return found


def _chosen(config: TrainConfig) -> dict[str, tuple[Any, Any, str]]:
    """The options that a run has, with the values that it would be made with."""
    parts = {name: its for name in PARTS if (its := getattr(config, name)) is not None}
    values = vars(config) | _defaults(config) | {name: its.kind for name, its in parts.items()}
    idle = {
        "parameters": config.setting != "parameter" or config.env == "pendulum",
        "forces": config.setting != "adversarial" or config.env == "pendulum",
        "reward": config.env != "pendulum", "action_cost": config.env != "pendulum",
        "mixture": config.setting != "action", "scope": config.setting == "none", "strength": config.setting == "none",
        "random_episodes": config.solver.kind == "on-policy",
        **dict.fromkeys(("output_rule", "model", "solver"), not config.model),
    }  # fmt: skip
    found = {name: (hint, values[name], text) for name, (hint, _, text) in _place().items() if not idle.get(name)}
    for its in parts.values():
        for flag, each in options_with(type(its), config.algo).items():
            found[flag] = each.hint, getattr(its, each.field), field_texts(type(its))[each.field]
    return found


def _defaults(config: TrainConfig) -> dict[str, Any]:
    """What the environment itself chooses where nothing is given."""
    family = "pendulum" if config.env == "pendulum" else "robot"
    defaults = {
        "strength": STRENGTH[family][config.setting], "horizon": HORIZON.get(config.env),
        "scope": "episode" if config.setting == "parameter" else "step", "mixture": "noisy",
        "action_cost": ACTION_COST[config.reward],
    }  # fmt: skip
    return {name: value for name, value in defaults.items() if getattr(config, name) is None}


OPTIONS = _every()
Train = command_with(OPTIONS)


def helpful(command: TrainCommand) -> type[TrainCommand]:
    """`train` as its help should show it: with the options of what is chosen, and their defaults."""
    config = command.configuration(0, own=False)
    return command_with(_chosen(config))


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


def _train(config: TrainConfig, folder: Path, tensorboard: bool, profiled: bool, begun: bool = False) -> None:
    """A new run, or the rest of one that has `begun`."""
    from rhucrl.runtime.progress import Progress
    from rhucrl.storage.runs import ask_for_tensorboard
    from rhucrl.training import loop as training

    keep_compiled()
    if tensorboard:
        ask_for_tensorboard(folder, begun)
    if begun:
        _resume(folder, trust=True)  # the environment was named by whoever typed the command
    else:
        label = f"{config.algo} {config.env} seed {config.seed}"
        interrupts.advise(lambda: _how_to_resume(folder))
        with Progress(config.episodes, label) as progress:
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
        show_warning(f"the run began with {name} {was}, this is {now}: numbers may differ")
    keep_compiled()
    label = f"{run.config['algo']} {run.config['env']}"
    interrupts.advise(lambda: _how_to_resume(folder))
    with Progress(episodes or run.config["episodes"], label) as progress:
        place = training.env_named(run.config, env)
        training.resume(folder, episodes=episodes, progress=progress, env=place, trust=trust)


def _side_by_side(commands: dict[str, list[str]]) -> int:
    """Run them, one per core; the largest exit code."""
    from rhucrl.runtime.processes import run_side_by_side

    failed = {name: code for name, code in run_side_by_side(commands).items() if code}
    for name, code in failed.items():
        print(f"{name} ended with exit code {code}; its message is above", file=sys.stderr)
    return max(failed.values(), default=0)


def _print_plan(config: TrainConfig, folders: dict[int, Path]) -> int:
    """A dry run: the tree, and its cost."""
    import json

    from rhucrl.experiments.estimate import estimate

    print(json.dumps(config.tree(), indent=2))
    cost, runs = estimate(config), len(folders)
    rows = [
        ("CPU time", f"about {cost.cpu_minutes:.1f} minutes" if cost.cpu_minutes else "not estimated"),
        ("memory", f"about {cost.memory_mb:.0f} MB"), ("disk", f"about {cost.disk_mb:.1f} MB"),
    ]  # fmt: skip
    print_table("each run would take" if runs > 1 else "the run would take", ("what", "how much"), rows)
    print("nothing was trained: " + ", ".join(map(str, folders.values())))
    return 0


def _print_profile(folder: Path) -> None:
    from rhucrl.runtime.timing import profile
    from rhucrl.storage.runs import Run
    from rhucrl.storage.trees import dump

    spent = profile(Run.open(folder).timing())
    total = sum(spent.values())
    (folder / "profile.json").write_bytes(dump({name: round(seconds, 3) for name, seconds in spent.items()}, 1))
    rows = [(name, f"{seconds:.1f}", f"{seconds / total:.1%}") for name, seconds in spent.items()]
    print_table("where the CPU seconds went", ("phase", "seconds", "share"), rows)


def _how_to_resume(*folders: Path) -> str:
    commands = [f"`rhucrl resume {shlex.quote(str(at))}`" for at in folders if (at / "config.json").exists()]
    if not commands:
        return "nothing was saved"
    return f"{', '.join(commands)} {'continues' if len(commands) == 1 else 'continue'}"


def keep_compiled() -> None:
    from rhucrl.runtime.compilation import enable_cache

    enable_cache()


def show_warning(message: Warning | str, *_: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
