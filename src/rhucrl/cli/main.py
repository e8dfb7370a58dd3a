"""Robust model-based reinforcement learning: learn policies that hold against an adversary, and attack policies."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from rhucrl import __version__
from rhucrl.algorithms import EVERY
from rhucrl.cli.attack import Attack, Evaluate
from rhucrl.cli.bench import Bench
from rhucrl.cli.completion import Completion
from rhucrl.cli.envs import CheckEnv, Video
from rhucrl.cli.mistakes import one_line
from rhucrl.cli.theory import Theory
from rhucrl.cli.train import Resume, Train, TrainCommand, helpful, keep_compiled, show_warning
from rhucrl.envs import ENVIRONMENTS, HORIZON, NAMES, STRENGTH, Mixture, Reward, Scope, Setting
from rhucrl.errors import DiskError, SimulationError, UsageError, unknown
from rhucrl.presets import ENVIRONMENTS as PRESETS
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
class List:
    """Show what there is to choose from."""

    kind: Annotated[Literal["algos", "envs", "settings", "presets"], Positional]
    """What to show."""

    def run(self) -> int:
        if self.kind == "algos":
            print_table(None, ("algorithm", "meaning"), [(name, row.summary) for name, row in EVERY.items()])
        elif self.kind == "envs":
            rows = [(name, ENVIRONMENTS[name], f"{HORIZON[name]}") for name in NAMES]
            print_table(None, ("environment", "meaning", "steps"), rows)
        elif self.kind == "presets":
            texts = {
                env: " ".join(f"{name}={its}" for name, its in numbers.items()) for env, numbers in PRESETS.items()
            }
            print_table(None, ("environment", "what differs from the options' defaults"), [*texts.items()])
            print("`rhucrl train ENV --help` shows every option with the value that will be used")
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

        keep_compiled()
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
            warnings.showwarning = show_warning
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
    if arguments[0] != "train":
        return _parsed(arguments, COMMANDS)
    asked = [word for word in arguments if word not in ("-h", "--help")]
    if asked == arguments:
        return dataclasses.replace(_parsed(arguments, COMMANDS), typed=tuple(arguments))
    try:
        command: TrainCommand = dataclasses.replace(_parsed(asked, COMMANDS), typed=tuple(asked))
        return _parsed(arguments, COMMANDS | {"train": helpful(command)})
    except UsageError:  # help is for those who have made a mistake, too
        return _parsed(["train", "--help"], COMMANDS | {"train": helpful(TrainCommand())})


def _parsed(arguments: list[str], commands: dict[str, Any]) -> Any:
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), readable_help():
            return tyro.extras.subcommand_cli_from_dict(
                commands, prog="rhucrl", description=__doc__, args=arguments, sort_subcommands=False
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(one_line(errors.getvalue())) from None


if __name__ == "__main__":
    from rhucrl.__main__ import main as entry

    sys.exit(entry())
