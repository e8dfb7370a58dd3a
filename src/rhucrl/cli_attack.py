"""The commands that judge a policy: play it, and search for its worst adversary."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from rhucrl.envs import Mixture, Scope, Setting
from rhucrl.errors import UsageError, unknown

if TYPE_CHECKING:
    from rhucrl.envs.face import ZeroSumEnv
    from rhucrl.evaluation.attack import Shelf, WorstCase

Budget = Literal["quick", "standard", "thorough"]
RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]
NUMBERS = ("return", "steps", "CPU s")  # columns of them
PLACE = ("setting", "strength", "scope", "mixture", "horizon")


@dataclass(frozen=True)
class Subject:
    """A policy and its environment."""

    policy: Annotated[str, Positional, arg(metavar="RUN")]
    """A run's or a policy's folder; with --env also a .zip of Stable-Baselines3 or SBX, an .onnx file, module:function,
    which returns a policy; lqr or cascade, the controllers made for inverted-pendulum; or planner, which plans in the
    environment's own dynamics."""
    env: str | None = None
    """The environment, where the policy has none of its own or shall play in another one."""
    setting: Setting | None = None
    """What the adversary may do in --env; by default adversarial."""
    strength: float | None = None
    """The adversary's strength in --env; by default the setting's."""
    scope: Scope | None = None
    """Whether the adversary acts at every step or once per episode; by default what the setting asks for."""
    mixture: Mixture | None = None
    """In the action setting: noisy (the default) or probabilistic."""
    horizon: int | None = None
    """Steps per episode; by default the environment's."""
    budget_ms: float | None = None
    """A planner's milliseconds per step, instead of a number of rounds: returns then depend on the machine."""

    def meet(self) -> tuple[Any, ZeroSumEnv]:
        """The policy and its environment; an agent, if it is one of ours."""
        place = {name: getattr(self, name) for name in PLACE}
        given = [f"--{name}" for name, value in place.items() if value is not None]
        if self.env is None and given:
            raise UsageError(f"{given[0]} belongs to --env: name the environment too, or leave it out")
        from rhucrl.compilation import enable_cache

        enable_cache()
        import rhucrl
        from rhucrl.envs import make
        from rhucrl.evaluation.foreign import FILES, load_policy

        if self.env is None:
            if ":" in self.policy or Path(self.policy).suffix in FILES:
                raise UsageError(f"{self.policy} does not say where it plays: name its environment with --env")
            from rhucrl import training

            agent = rhucrl.load(self.policy)
            return in_time(agent, env := training.env_of(agent.config), self.budget_ms), env
        env = make(self.env, **{**place, "setting": self.setting or "adversarial"})
        return in_time(load_policy(self.policy, env), env, self.budget_ms), env


def in_time(policy: Any, env: ZeroSumEnv, budget_ms: float | None) -> Any:
    """The policy; with a budget, it has to plan, and does so as long as that allows."""
    if budget_ms is None:
        return policy
    from rhucrl.planner import Planner
    from rhucrl.solvers.planning import Planning

    planning: Any = getattr(policy, "policy", None)
    if not isinstance(planning, Planning):
        raise UsageError("--budget-ms is for planners: name `planner`, or a run with --solver planner, or leave it out")
    return Planner.of(env, planning, budget_ms)


@dataclass(frozen=True)
class Evaluate:
    """Play a policy: alone, against the adversary it learned with, and against a quick attack; or sweep a parameter."""

    run_dir: RunFolder
    """A run's or a policy's folder."""
    seed: int = 0
    """Random seed of the evaluation."""
    episodes: int = 10
    """Episodes to average over."""
    budget_ms: float | None = None
    """A planner's milliseconds per step, instead of a number of rounds."""
    sweep: str | None = None
    """mass=LOW:HIGH:COUNT, of a run in the parameter setting: returns at so many values of the closed range and at the
    worst value that a search finds; with a plot, sweep.png in the run's folder."""

    def run(self) -> int:
        agent, env = Subject(str(self.run_dir), budget_ms=self.budget_ms).meet()
        if self.sweep is not None:
            return self._sweep(agent, env, *parsed_sweep(self.sweep))
        from rhucrl.evaluation.arena import arena, gains
        from rhucrl.evaluation.attack import seeds
        from rhucrl.evaluation.search import Trained

        found = attacked(str(self.run_dir), agent, env, "quick", self.seed)
        fresh = seeds(self.seed, 1, self.episodes)
        rows = {"none": found.calm}
        if hasattr(agent, "adversary"):
            rows["the one it learned with"] = tuple(gains(arena(agent, env), Trained(agent), fresh))
        rows["the worst of a quick attack"] = found.findings[found.attack].returns
        print_table(str(self.run_dir), ("adversary", "return"), [(name, told(gains)) for name, gains in rows.items()])
        return 0

    def _sweep(self, agent: Any, env: ZeroSumEnv, name: str, low: float, high: float, count: int) -> int:
        from rhucrl.evaluation.attack import sweep_parameter
        from rhucrl.experiments.plots import plot_sweep

        box = env.boxes["adversary"]
        if env.game.scope != "episode" or box.shape != (1,):
            raise UsageError("only what is fixed for an episode can be swept: the run has to be in --setting parameter")
        least, most = float(box.low[0]), float(box.high[0])
        if not least - 1e-6 <= low < high <= most + 1e-6:
            raise UsageError(f"--sweep goes from {low:g} to {high:g}; the run's range is {least:.4g} to {most:.4g}")
        swept = sweep_parameter(agent, env, count, self.seed, (low, high))
        found = attacked(str(self.run_dir), agent, env, "standard", self.seed)
        worst = float(found.adversary(box.low, 0)[0])
        rows = [(f"{value[0]:.4g}", told(row)) for value, row in zip(swept.values, swept.samples, strict=True)]
        print_table(str(self.run_dir), (name, "return"), rows)
        print(f"the worst {name} that a search found is {worst:.4g}: {told(found.findings[found.attack].returns)}")
        print(
            plot_sweep(Path(self.run_dir) / "sweep.png", name, swept.values[:, 0], swept.samples, (worst, found.worst))
        )
        return 0


def parsed_sweep(text: str) -> tuple[str, float, float, int]:
    name, _, span = text.partition("=")
    try:
        low, high, count = span.split(":")
        row = name, float(low), float(high), int(count)
    except ValueError:
        raise UsageError(f"--sweep is {text!r}; write it as mass=LOW:HIGH:COUNT, for example mass=0.5:1.5:11") from None
    if name != "mass":
        raise unknown("parameter", name, ["mass"])
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
        from rhucrl.evaluation.findings import Folder
        from rhucrl.evaluation.foreign import fingerprint

        place = {**env.game.options(), "budget": self.budget, "seed": self.seed}
        folder = self.save or self._folder(place)
        shelf = Folder(folder, {"policy": self.policy, "fingerprint": fingerprint(self.policy), **place})
        with self._help(env) as crew:
            found = attacked(self.policy, policy, env, self.budget, self.seed, shelf, self.clip, self.only, crew)
        rows = [("none", told(found.calm), "", "")]
        rows += [(name, told(row.returns), str(row.steps), f"{row.cpu:.1f}") for name, row in found.findings.items()]
        print_table(self.policy, ("attack", "return", "steps", "CPU s"), rows)
        print(f"worst case {found.worst:.1f}, by {found.attack}; the adversaries are in {folder}")
        return 0

    def _help(self, env: ZeroSumEnv) -> Any:
        """Other processes, where they are worth their start."""
        from rhucrl.envs.game import JaxGame
        from rhucrl.evaluation.crew import Crew
        from rhucrl.processes import own_cores

        jobs = self.jobs or (1 if self.budget == "quick" else len(own_cores()))
        if jobs < 2 or isinstance(env.game, JaxGame):
            return contextlib.nullcontext()
        names = [field.name for field in dataclasses.fields(Subject)]
        return Crew({name: getattr(self, name) for name in (*names, "clip")}, jobs)

    def _folder(self, place: Mapping[str, Any]) -> Path:
        path = Path(self.policy)
        inside = (path / "config.json").exists()
        words = [*([] if inside else [path.stem]), *(str(value) for value in place.values() if value is not None)]
        return (path if inside else Path()) / "attacks" / re.sub(r"[^\w.]+", "-", "-".join(words))


def attacked(
    label: str, policy: Any, env: ZeroSumEnv, budget: Budget, seed: int, shelf: Shelf | None = None, clip: bool = False,
    only: Sequence[str] = (), crew: Any = None,
) -> WorstCase:  # fmt: skip
    """The worst case, its progress shown."""
    from rhucrl.evaluation.attack import rounds, worst_case
    from rhucrl.progress import Progress

    with Progress(rounds(policy, env, budget, only), f"attack {label}") as progress:
        return worst_case(policy, env, budget, seed, progress, shelf, clip, only, crew)


def told(returns: Sequence[float]) -> str:
    """The mean, with its interval where the returns differ."""
    from rhucrl.evaluation.statistics import estimate

    value, low, high = estimate(list(returns))
    return f"{value:.1f}" if low == high else f"{value:.1f} [{low:.1f}, {high:.1f}]"


def print_table(title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; where it does not fit, every row as a list."""
    from rich.table import Table

    from rhucrl.terminal import console

    table, screen = Table(title=title, title_justify="left"), console()
    for name in head:
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    for row in rows:
        table.add_row(*row)
    if screen.measure(table, options=screen.options.update(max_width=1000)).minimum <= screen.width:
        screen.print(table)
        return
    lines = [title] if title else []
    for first, *others in rows:
        lines += [first, *(f"  {name}: {text}" for name, text in zip(head[1:], others, strict=True) if text)]
    for line in lines:
        print(textwrap.fill(line, max(screen.width, 10), subsequent_indent="    "))
