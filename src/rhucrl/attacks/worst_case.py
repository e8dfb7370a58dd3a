"""The worst case of a policy (`eq:performance` minimised over adversaries), searched by several attacks.

No single search finds the worst adversary of every policy, so a battery of them runs and the minimum counts. Each
attack hands over adversaries, and only the returns of replaying them on fresh episodes of the true game are reported:
a number of this module is always one that a policy really got.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from rhucrl.attacks.arena import arena, gains, score
from rhucrl.attacks.battery import AttackSearch, Effort, Trained, battery, is_certain, lattice
from rhucrl.attacks.families import Member, load_member, members
from rhucrl.attacks.planning import PlanningAdversary, load_planner
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError, unknown
from rhucrl.runtime.progress import SILENT, ShowsProgress
from rhucrl.statistics import Estimate, estimate
from rhucrl.storage.trees import read_meta

if TYPE_CHECKING:
    from rhucrl.attacks.workers import Workers

Budget = Literal["quick", "standard", "thorough"]

NOBODY = "none"  # the attack that is none

EFFORTS: dict[str, dict[str, Effort]] = {
    "jax": {
        "quick": Effort(32, 16, 2, 16, 4, (49,), 3, 8, 8, grids=(200,), strays=16),
        "standard": Effort(64, 64, 3, 64, 10, (49, 225), 3, 16, 16, (1, 10), 150, 50, (200, 400), 64, (30,)),
        "thorough": Effort(
            128, 256, 6, 128, 25, (49, 225, 1681), 3, 32, 32, (1, 5, 10, 20), 400, 200, (200, 400), 256, (30, 60)
        ),
    },
    "host": {
        "quick": Effort(16, 4, 1, 12, 4, (9,), 2, 1, 5),
        "standard": Effort(64, 16, 2, 32, 8, (9, 25), 3, 2, 10, (1, 20), 12, 50),
        "thorough": Effort(128, 64, 4, 64, 16, (9, 25, 81), 4, 3, 20, (1, 10, 40), 50, 200),
    },
}


class AttackFinding(NamedTuple):
    """An attack's worst adversary, the policy's returns against it on fresh seeds, and what finding it has cost."""

    adversary: Any
    returns: tuple[float, ...]
    steps: int
    cpu: float

    @property
    def estimate(self) -> Estimate:
        """The mean return, with an interval where episodes differ."""
        return estimate(self.returns)


class WorstCase(NamedTuple):
    """The returns without an adversary, and what each attack has found."""

    calm: tuple[float, ...]
    findings: dict[str, AttackFinding]

    @property
    def nominal(self) -> float:
        return float(np.mean(self.calm))

    @property
    def attacks(self) -> dict[str, float]:
        """The mean return under each attack."""
        return {name: float(np.mean(found.returns)) for name, found in self.findings.items()}

    @property
    def attack(self) -> str:
        """The one that has found the worst; `none` where every adversary that was found is better than nobody."""
        rows = {**self.attacks, NOBODY: self.nominal}
        return min(rows, key=rows.__getitem__)

    @property
    def returns(self) -> tuple[float, ...]:
        """The returns in the worst case."""
        return self.calm if self.attack == NOBODY else self.findings[self.attack].returns

    @property
    def worst(self) -> float:
        """The lowest mean return: never above the nominal one, because to do nothing is open to every adversary."""
        return float(np.mean(self.returns))

    @property
    def adversaries(self) -> dict[str, Any]:
        return {name: found.adversary for name, found in self.findings.items()}

    @property
    def adversary(self) -> Any:
        """The worst one; None is nobody."""
        return None if self.attack == NOBODY else self.findings[self.attack].adversary


class Sweep(NamedTuple):
    """The worst case at each strength."""

    strengths: tuple[float, ...]
    cases: tuple[WorstCase, ...]

    @property
    def worst(self) -> tuple[float, ...]:
        return tuple(case.worst for case in self.cases)


class ParameterSweep(NamedTuple):
    """The returns on fresh seeds at each value of an adversary that is fixed for the episode."""

    values: np.ndarray
    samples: np.ndarray

    @property
    def returns(self) -> np.ndarray:
        return self.samples.mean(1)


class Shelf(Protocol):
    """Where findings are kept, so that an interrupted attack goes on where it was."""

    def get(self, name: str) -> AttackFinding | None: ...

    def put(self, name: str, finding: AttackFinding) -> None: ...


def seeds(seed: int, purpose: int, count: int) -> list[int]:
    """Seeds of episodes: of searches (purpose 0) and of replays (purpose 1)."""
    return [int(x) for x in np.random.SeedSequence([seed, purpose]).generate_state(count)]


def effort_of(game: Game, budget: Budget, episodes: int | None = None) -> Effort:
    """The budget's effort, with another number of `episodes` of a replay if one is given."""
    table = EFFORTS["jax" if isinstance(game, JaxGame) else "host"]
    if budget not in table:
        raise unknown("budget", str(budget), table)
    effort = table[budget]._replace(**({} if episodes is None else {"unseen": episodes}))
    return effort._replace(seen=1, unseen=1) if is_certain(game) else effort


def worst_case(
    policy: Any, env: Any, budget: Budget = "quick", seed: int = 0, progress: ShowsProgress = SILENT,
    shelf: Shelf | None = None, clip: bool = False, only: Sequence[str] = (), workers: Workers | None = None,
    episodes: int | None = None,
) -> WorstCase:  # fmt: skip
    """The worst return of `policy` in `env` that the attacks of a budget find; the same for the same seed.

    The policy is a function of observations, or has Stable-Baselines3's `predict`. Where starts or executions are
    random, adversaries are searched on some episodes and replayed on others, so that the reported mean is not the luck
    of the search. An action outside the agent's box is an error, unless `clip` lets the environment clip it. `only`
    names some of the attacks, `workers` play on other cores, a replay has so many `episodes` (by default the budget's),
    and `progress.update(n, text)` is called with how many of `rounds(policy, env, budget)` are done.
    """
    env = ZeroSumEnv(env) if isinstance(env, JaxGame) else env
    effort, findings, doing = effort_of(getattr(env, "game", env), budget, episodes), {}, ["nominal"]

    def watch() -> None:
        progress.update(len(findings), f"{doing[0]}, {place.steps} steps")

    place = arena(policy, env, clip, watch, workers)
    search = AttackSearch(place, effort, policy, seeds(seed, 0, effort.seen), seed)
    fresh = seeds(seed, 1, effort.unseen)
    calm = tuple(gains(place, None, fresh))
    for name, attack in chosen(battery(search), only).items():
        doing[0] = name
        found = shelf.get(name) if shelf else None
        if found is None:
            found = carried_out(search, attack, fresh, np.random.default_rng([seed, zlib.crc32(name.encode())]))
            if shelf:
                shelf.put(name, found)
        findings[name] = found
        watch()
    return WorstCase(calm, findings)


def carried_out(
    search: AttackSearch, attack: Any, fresh: Sequence[int], generator: np.random.Generator
) -> AttackFinding:
    """The worst of an attack's adversaries on fresh episodes."""
    place, clock, before = search.arena, search.arena.cpu, search.arena.steps
    tried = attack(search, generator)
    replays = place.play(tried, fresh)
    worst = min(range(len(tried)), key=lambda i: score(replays[i]))
    returns = demand_finite(tuple(float(played.gain) for played in replays[worst]))
    return AttackFinding(tried[worst], returns, place.steps - before, place.cpu - clock)


def demand_finite(returns: tuple[float, ...]) -> tuple[float, ...]:
    if not all(map(math.isfinite, returns)):
        raise UsageError("a return under attack is not finite: check the policy's actions and the environment")
    return returns


def chosen(rows: dict[str, Any], only: Sequence[str]) -> dict[str, Any]:
    for name in only:
        if name not in rows:
            raise unknown("attack of this budget", name, rows)
    return {name: rows[name] for name in only} or rows


def rounds(policy: Any, env: Any, budget: Budget = "quick", only: Sequence[str] = ()) -> int:
    """How many attacks there are."""
    env = ZeroSumEnv(env) if isinstance(env, JaxGame) else env
    search = AttackSearch(arena(policy, env), effort_of(env.game, budget), policy, (), 0)
    return len(chosen(battery(search), only))


def sweep(policy: Any, env: Any, strengths: Sequence[float], budget: Budget = "quick", seed: int = 0) -> Sweep:
    """The worst case as a function of the adversary's strength; every strength runs the same compiled programs."""

    def stronger(strength: float) -> Any:
        if isinstance(env, ZeroSumEnv):
            return env.at(strength)
        return eqx.tree_at(lambda game: game.strength, env, jnp.asarray(strength, env.strength.dtype))

    cases = tuple(worst_case(policy, stronger(strength), budget, seed) for strength in strengths)
    return Sweep(tuple(map(float, strengths)), cases)


def sweep_parameter(
    policy: Any, env: Any, points: int = 21, seed: int = 0, between: tuple[float, float] | None = None
) -> ParameterSweep:
    """The returns at evenly spaced values over the closed range of the adversary's action, each held for an episode.

    `points` counts the values along each dimension of the adversary; `between` narrows the range.
    """
    env = ZeroSumEnv(env) if isinstance(env, JaxGame) else env
    place, fresh = arena(policy, env), seeds(seed, 1, effort_of(env.game, "quick").unseen)
    low, high = between or (np.asarray(x) for x in env.game.adversary)
    units = lattice(env.game.adversary.size, points**env.game.adversary.size)
    values = low + (units + 1) / 2 * (np.asarray(high) - low)
    held = members(env.game, "constant", env.game.adversary.on_host(float).unit(values))
    rows = [[played.gain for played in row] for row in place.play(held, fresh)]
    return ParameterSweep(values, np.asarray(rows))


def load_adversary(folder: str | Path) -> Member | PlanningAdversary | Trained:
    """The adversary that was saved in a folder."""
    kind = read_meta(folder).get("adversary")
    if kind is None:
        raise UsageError(f"{folder} holds no adversary: name a folder that `rhucrl attack` wrote")
    if kind == "trained":
        from rhucrl.training.agent import load

        return Trained(load(folder))
    return load_planner(folder) if kind == "planner" else load_member(folder)
