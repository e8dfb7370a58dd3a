"""The commands that judge a policy: play it, and search for its worst adversary."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from rhucrl.attacks.subject import Subject
from rhucrl.errors import UsageError, unknown
from rhucrl.runtime.tables import print_table

if TYPE_CHECKING:
    import numpy as np

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
    of the closed range and at the worst value that a search finds; with a plot, sweep.png in the run's folder."""

    def run(self) -> int:
        if self.sweep is None:
            from rhucrl.cli.evaluate import evaluate

            return evaluate(self)
        if len(self.runs) != 1:
            raise UsageError(f"--sweep is for one run, here are {len(self.runs)}: name one, or sweep each")
        if not any((self.runs[0] / name).exists() for name in ("config.json", "meta.json")):
            raise UsageError(f"{self.runs[0]} is no run and no policy: --sweep is for one run, name it")
        return self._sweep(*self.meet(self.runs[0]), *parsed_sweep(self.sweep))

    def meet(self, run: Path) -> tuple[Any, ZeroSumEnv]:
        return Subject(str(run), env=self.env, trust=self.trust, budget_ms=self.budget_ms).meet()

    def _sweep(self, agent: Any, env: ZeroSumEnv, name: str, low: float, high: float, count: int) -> int:
        import numpy as np

        from rhucrl.experiments.plots import plot_sweep

        box, names = env.boxes["adversary"], parameters_of(env)
        if env.game.scope != "episode" or box.shape != (len(names),):
            raise UsageError("only what is fixed for an episode can be swept: the run has to be in --setting parameter")
        if name not in names:
            raise unknown("parameter", name, names)
        column = names.index(name)
        least, most = float(box.low[column]), float(box.high[column])
        if not least - 1e-6 <= low < high <= most + 1e-6:
            raise UsageError(f"--sweep goes from {low:g} to {high:g}; the run's range is {least:.4g} to {most:.4g}")
        rows = np.tile(env.neutral.astype(float), (count, 1))
        values = rows[:, column] = np.linspace(low, high, count)
        (run,) = self.runs
        samples, worst, returns = swept(agent, env, rows, column, self.seed, f"sweep {run}")
        shown = [(f"{value:.4g}", mean_of(row)) for value, row in zip(values, samples, strict=True)]
        print_table(str(run), (name, "return"), shown)
        print(f"the worst {name} from {low:g} to {high:g} that a search found is {worst:.4g}: {mean_of(returns)}")
        known = vars(agent.config) if hasattr(agent, "config") else {"algo": run.name, "seed": self.seed}
        config = {"env": "pendulum", **known, **env.game.options()}
        print(plot_sweep(run / "sweep.png", name, values, samples, (worst, float(np.mean(returns))), config))
        return 0


def parameters_of(env: ZeroSumEnv) -> list[str]:
    """The names of what the adversary chooses for an episode."""
    return getattr(getattr(env.system, "disturbance", None), "names", ["mass"])


def swept(
    agent: Any, env: ZeroSumEnv, rows: np.ndarray, column: int, seed: int, label: str
) -> tuple[Any, float, Sequence[float]]:
    """The returns at values of an episode's parameters, of which one column changes; its worst value in their range,
    and the returns there.

    It is searched on other episodes than those of the returns.
    """
    import numpy as np

    from rhucrl.attacks.arena import arena
    from rhucrl.attacks.battery import AttackSearch, zoom
    from rhucrl.attacks.families import members
    from rhucrl.attacks.worst_case import carried_out, effort_of, seeds
    from rhucrl.runtime.progress import Progress

    game, effort = env.game, effort_of(env.game, "standard")
    points, fresh = effort.lattices[-1], seeds(seed, 1, effort_of(game, "quick").unseen)
    episodes = len(rows) * len(fresh) + (points + 1) * (effort.zooms + 1) * effort.seen
    with Progress(episodes * game.horizon, label) as progress:
        place = arena(agent, env, watch=lambda: progress.update(place.steps, "steps"))
        units = game.adversary.on_host(float).unit(rows)
        played = place.play(members(game, "constant", units), fresh)
        samples = [[episode.gain for episode in row] for row in played]
        search = AttackSearch(place, effort, agent, seeds(seed, 0, effort.seen), seed)
        within = partial(zoom, points=points, low=units[0], high=units[-1])
        found = carried_out(search, within, fresh, np.random.default_rng(seed))
    value, values = float(found.adversary(np.zeros(game.observation.size), 0)[column]), rows[:, column].tolist()
    worst, returns = min([*zip(values, samples, strict=True), (value, found.returns)], key=lambda x: sum(x[1]))
    return np.array(samples), worst, returns


def parsed_sweep(text: str) -> tuple[str, float, float, int]:
    name, _, span = text.partition("=")
    try:
        low, high, count = span.split(":")
        row = name, float(low), float(high), int(count)
    except ValueError:
        raise UsageError(f"--sweep is {text!r}; write it as mass=LOW:HIGH:COUNT, for example mass=0.5:1.5:11") from None
    if row[3] < 3:
        raise UsageError(f"--sweep asks for {row[3]} values; it must be at least 3")
    return row


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
