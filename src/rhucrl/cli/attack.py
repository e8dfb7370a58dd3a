"""The commands that judge a policy: play it, and search for its worst adversary."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from rhucrl.attacks.subject import Subject
from rhucrl.errors import UsageError
from rhucrl.runtime.tables import print_table

if TYPE_CHECKING:
    from rhucrl.attacks.worst_case import Shelf, WorstCase
    from rhucrl.envs.zero_sum_env import ZeroSumEnv

Budget = Literal["quick", "standard", "thorough"]
RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]


@dataclass(frozen=True)
class Evaluate:
    """Judge policies: alone, against the adversary that each learned with, and in the worst case that an attack finds.

    Of several runs it shows each, and the mean of those that differ in nothing but the seed with its 95 % interval.
    """

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN [RUN ...]")]
    """Folders of runs, folders of several runs, or saved policies."""
    protocol: Literal["battery", "paper"] = "battery"
    """The attack: every one of a budget, or the paper's: an adversary learns by soft actor-critic for 200 episodes."""
    budget: Budget | None = None
    """Battery: how long to search; by default quick."""
    attack_episodes: int | None = None
    """Paper: episodes for which the adversary learns; by default 200."""
    seed: int = 0
    """Random seed of the evaluation."""
    episodes: int = 10
    """Episodes to average over; one is enough where all are the same."""
    env: str | None = None
    """module:make of the environment, where it is one of your own."""
    trust: bool = False
    """Import the environment by the name in the run's folder, which runs its code: only for runs that you trust."""
    budget_ms: float | None = None
    """A planner's milliseconds per step, instead of a number of rounds."""
    json: Path | None = None
    """Write every run's returns to this file too."""
    sweep: str | None = None
    """mass=LOW:HIGH:COUNT (or another parameter's name), of a run in the parameter setting: returns at so many values
    of the closed range and at the worst value that a search finds; with a plot, sweep.png in the run's folder. Of two
    parameters, NAME=LOW:HIGH:COUNT,NAME=LOW:HIGH:COUNT: a map."""

    def run(self) -> int:
        if self.sweep is None:
            from rhucrl.cli.evaluate import evaluate

            return evaluate(self)
        if len(self.runs) != 1:
            raise UsageError(f"--sweep is for one run, here are {len(self.runs)}: name one, or sweep each")
        if not any((self.runs[0] / name).exists() for name in ("config.json", "meta.json")):
            raise UsageError(f"{self.runs[0]} is no run and no policy: --sweep is for one run, name it")
        from rhucrl.cli.sweep import sweep

        return sweep(self, *self.meet(self.runs[0]))

    def meet(self, run: Path) -> tuple[Any, ZeroSumEnv]:
        return Subject(str(run), env=self.env, trust=self.trust, budget_ms=self.budget_ms).meet()


@dataclass(frozen=True)
class Attack(Subject):
    """Search for the adversary that hurts a policy most; stopped, the same command goes on where it was."""

    budget: Budget = "standard"
    """How long to search: quick (searches only), standard, or thorough (with the paper's 200 episodes of SAC)."""
    seed: int = 0
    """Random seed of the search."""
    only: tuple[str, ...] = ()
    """Some of the attacks; by default all."""
    jobs: int | None = None
    """Processes that play on simulators; by default one per core (a quick attack: one). The numbers are the same."""
    clip: bool = False
    """Clip the policy's actions to their box; by default an action outside is an error."""
    save: Path | None = None
    """The folder of the adversaries that are found, which `rhucrl video --against FOLDER/NAME` plays again; by default
    attacks/... in the run's folder, or in this one."""

    def run(self) -> int:
        policy, env = self.meet()
        from rhucrl.attacks.folder import Folder, folder_of
        from rhucrl.attacks.foreign import fingerprint

        place = {**env.game.options(), "budget": self.budget, "seed": self.seed}
        folder = self.save or folder_of(self.policy, place.values())
        shelf = Folder(folder, {"policy": self.policy, "fingerprint": fingerprint(self.policy), **place})
        with self._help(env) as workers:
            found = attacked(self.policy, policy, env, self.budget, self.seed, shelf, self.clip, self.only, workers)
        rows = [("none", mean_of(found.calm), "", "")]
        rows += [(name, mean_of(row.returns), str(row.steps), f"{row.cpu:.1f}") for name, row in found.findings.items()]
        print_table(self.policy, ("attack", "return", "steps", "CPU s"), rows)
        by = f"by {found.attack}" if found.adversary is not None else "that of no adversary: no attack lowered it"
        print(f"worst case {found.worst:.1f}, {by}; the adversaries are in {folder}")
        return 0

    def _help(self, env: ZeroSumEnv) -> Any:
        """Other processes, where they are worth their start."""
        from rhucrl.attacks.workers import Workers
        from rhucrl.envs.game import JaxGame
        from rhucrl.runtime.processes import own_cores

        jobs = self.jobs or (1 if self.budget == "quick" else len(own_cores()))
        if jobs < 2 or isinstance(env.game, JaxGame):
            return contextlib.nullcontext()
        names = [field.name for field in dataclasses.fields(Subject)]
        return Workers({name: getattr(self, name) for name in (*names, "clip")}, jobs)


def attacked(
    label: str, policy: Any, env: ZeroSumEnv, budget: Budget, seed: int, shelf: Shelf | None = None, clip: bool = False,
    only: Sequence[str] = (), workers: Any = None,
) -> WorstCase:  # fmt: skip
    """The worst case, its progress shown."""
    from rhucrl.attacks.worst_case import rounds, worst_case
    from rhucrl.runtime.progress import Progress

    with Progress(rounds(policy, env, budget, only), f"attack {label}") as progress:
        return worst_case(policy, env, budget, seed, progress, shelf, clip, only, workers)


def mean_of(returns: Sequence[float]) -> str:
    """The mean, with its interval where the returns differ."""
    from rhucrl.statistics import estimate

    value, low, high = estimate(list(returns))
    return f"{value:.1f}" if low == high else f"{value:.1f} [{low:.1f}, {high:.1f}]"
