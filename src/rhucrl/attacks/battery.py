"""Searches for the worst adversary, each on its own: they share nothing but the seeds of the episodes they see.

An attack hands over candidates, not numbers: what counts is what replaying them on fresh episodes gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rhucrl.algorithms import EVERY
from rhucrl.attacks import families as adversaries
from rhucrl.attacks import oracle
from rhucrl.attacks.arena import Arena, JaxArena, Score, score
from rhucrl.attacks.families import AbstractFound, member, members
from rhucrl.attacks.forward import worst_sequence
from rhucrl.attacks.learned import learn_adversary
from rhucrl.attacks.planning import planner
from rhucrl.attacks.rollouts import rollout
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.pendulum import Pendulum
from rhucrl.errors import UsageError
from rhucrl.networks.policies import Answer, Nobody, policy_of
from rhucrl.training.agent import Agent

HELD = 25  # steps for which a random action is held
SHIFT = 3  # steps by which the rest of a sequence moves at most when it evolves
START, SPREAD = 2.0, 0.5  # standard deviations of the first networks, and of a search around a chosen member


class Effort(NamedTuple):
    """How hard to search; the number of episodes grows with every entry."""

    constants: int  # constant adversaries at most
    random: int  # random adversaries of each kind
    restarts: int  # cross-entropy searches of each family
    population: int
    generations: int
    lattices: tuple[int, ...]  # values of an episode's parameter, over all of its dimensions
    zooms: int  # refinements around the worst of them
    seen: int  # episodes that a search judges an adversary by
    unseen: int  # episodes of a replay
    depths: tuple[int, ...] = ()  # steps that planners look ahead
    evolution: int = 0  # generations of evolved sequences
    sac: int = 0  # episodes of soft actor-critic
    grids: tuple[int, ...] = ()  # of best responses by dynamic programming, where the game allows it
    strays: int = 0  # from each of them
    cells: tuple[int, ...] = ()  # of searches forward in the true game, where every episode is the same


class AttackSearch(NamedTuple):
    """What an attack works with."""

    arena: Arena
    effort: Effort
    policy: Any
    seeds: Sequence[int]
    seed: int

    @property
    def game(self) -> Game:
        return self.arena.env.game

    def ranked(self, family: str, weights: np.ndarray) -> tuple[np.ndarray, list[Score]]:
        """The members' weights, the worst adversary first, and their scores."""
        scores = [score(row) for row in self.arena.play(members(self.game, family, weights), self.seeds)]
        order = sorted(range(len(weights)), key=scores.__getitem__)
        return weights[order], [scores[i] for i in order]

    def worst(self, family: str, weights: np.ndarray) -> list[Any]:
        return [member(self.game, family, self.ranked(family, weights)[0][0])]

    def cross_entropy(self, family: str, start: np.ndarray, generator: np.random.Generator) -> list[Any]:
        """From each of the worst members of `start`: refit a Gaussian to the worst ever drawn, repeatedly.

        Whether keeping the former worst finds worse adversaries than drawing anew is not established.
        """
        begun, scores = self.ranked(family, start)
        worst, elite = [(scores[0], begun[0])], max(2, self.effort.population // 4)
        for centre, centre_score in zip(begun[: self.effort.restarts], scores, strict=False):
            mean, spread, best = centre, np.full(centre.size, SPREAD), [(centre_score, centre)]
            for _ in range(self.effort.generations):
                drawn = mean + spread * generator.normal(size=(self.effort.population, mean.size))
                drawn, found = self.ranked(family, drawn)
                best = sorted([*best, *zip(found, drawn, strict=True)], key=lambda pair: pair[0])[:elite]
                chosen = np.stack([weights for _, weights in best])
                mean, spread = chosen.mean(0), chosen.std(0) + 0.05
            worst.append(best[0])
        return [member(self.game, family, min(worst, key=lambda pair: pair[0])[1])]

    def evolve(self, start: np.ndarray, generator: np.random.Generator) -> list[Any]:
        """From the worst sequence of `start`: stretches of it go to a vertex or move in time; what hurts more stays."""
        outputs, (worst, *_), (record, *_) = self.game.adversary.size, *self.ranked("sequence", start)
        for _ in range(self.effort.evolution):
            drawn = [mutated(worst.reshape(-1, outputs), generator).ravel() for _ in range(self.effort.population // 2)]
            (best, *_), (score, *_) = self.ranked("sequence", np.stack(drawn))
            worst, record = (best, score) if score < record else (worst, record)
        return [member(self.game, "sequence", worst)]


def mutated(actions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Some stretches, short ones more often than long ones, changed."""
    actions, steps = actions.copy(), len(actions)
    for _ in range(1 + generator.poisson(1.0)):
        begin, length = generator.integers(steps), int(np.ceil(steps ** generator.random() / 2))
        if generator.random() < 0.7:
            actions[begin : begin + length] = generator.choice((-1.0, 1.0), actions.shape[1])
        else:
            actions[begin:] = np.roll(actions[begin:], generator.integers(-SHIFT, SHIFT + 1), 0)
    return actions


Attack = Callable[[AttackSearch, np.random.Generator], list[Any]]


def constant(search: AttackSearch, generator: np.random.Generator) -> list[Any]:
    outputs = search.game.adversary.size
    return search.worst("constant", adversaries.extremes(outputs, search.effort.constants, generator))


def random(search: AttackSearch, generator: np.random.Generator, hold: int = 1) -> list[Any]:
    return search.worst("sequence", adversaries.sequences(search.game, search.effort.random, hold, generator))


def sequence(search: AttackSearch, generator: np.random.Generator) -> list[Any]:
    """Evolution of open-loop sequences."""
    coarse = adversaries.sequences(search.game, search.effort.population, HELD, generator)
    actions = coarse.reshape(len(coarse), -1, search.game.adversary.size)
    return search.evolve(actions[:, np.arange(search.game.horizon) // HELD].reshape(len(coarse), -1), generator)


def bang_bang(search: AttackSearch, generator: np.random.Generator) -> list[Any]:
    drawn = adversaries.feedbacks(search.game, search.effort.population, generator)
    return search.cross_entropy("bang-bang", np.concatenate([adversaries.known(search.game), drawn]), generator)


def cross_entropy(search: AttackSearch, generator: np.random.Generator) -> list[Any]:
    shape = search.effort.population, adversaries.size(search.game, "network")
    return search.cross_entropy("network", START * generator.normal(size=shape), generator)


def planning(search: AttackSearch, generator: np.random.Generator, depth: int) -> list[Any]:
    return [planner(search.game, depth, generator)]


def sac(search: AttackSearch, generator: np.random.Generator) -> list[Any]:
    """The paper's attack: an adversary learns against the frozen agent; its last and its best policy count."""
    return list(learn_adversary(search.arena, search.effort.sac, search.seed))


def zoom(
    search: AttackSearch, generator: np.random.Generator, points: int, low: Any = -1.0, high: Any = 1.0
) -> list[Any]:
    """The worst values of an episode's parameter: of a lattice, then of ever finer ones around the last.

    `low` and `high`, in [-1, 1], are the part of the box that is searched. All levels are candidates, because the
    return may jump and its narrowest spikes not survive a replay.
    """
    units = lattice(search.game.adversary.size, points)
    value, shrink, found = np.full(units.shape[1], (low + high) / 2), (high - low) / 2, []
    side = round(len(units) ** (1 / units.shape[1]))
    for level in range(search.effort.zooms + 1):
        tried = np.clip(value + shrink * units, low, high)
        tried = tried if level == 0 else np.concatenate([value[None], tried])
        value, shrink = search.ranked("constant", tried)[0][0], shrink * 2 / (side - 1)
        found.append(member(search.game, "constant", value))
    return found


def lattice(size: int, points: int) -> np.ndarray:
    """About `points` evenly spaced points of [-1, 1]^size, the vertices among them; at least 3 along a side."""
    side = np.linspace(-1, 1, max(3, round(points ** (1 / size))))
    return np.stack(np.meshgrid(*[side] * size), -1).reshape(-1, size)


def best_response(search: AttackSearch, generator: np.random.Generator, grid: int) -> list[Any]:
    """Dynamic programming against the fixed policy, the worst stray from what it found, and what evolves from both.

    Where a policy jumps, a best response on a grid is a little wrong, and these mend it.
    """
    arena: Any = search.arena
    keys = jax.vmap(jax.random.key)(jnp.asarray(search.seeds, jnp.uint32))
    guide = oracle.best_response(arena.env.game, arena.policy, grid)[1]
    stray = oracle.worst_stray(guide, search.effort.strays, jax.random.key(generator.integers(2**31)), keys)
    found = [as_data(search.game, arena.policy, adversary) for adversary in (guide, stray)]
    if is_certain(search.game):
        found += search.evolve(np.stack([one.weights for one in found]), generator)
    return found


def forward(search: AttackSearch, generator: np.random.Generator, cells: int) -> list[Any]:
    arena: Any = search.arena
    found = np.asarray(worst_sequence(arena.env.game, arena.policy, cells)[1])
    return search.evolve(found.reshape(1, -1), generator)


def as_data(game: Any, policy: Any, adversary: Any) -> Any:
    """The actions that it plays, where every episode is the same."""
    if not is_certain(game):
        return adversary
    low, high = game.adversary
    units = 2 * (rollout(game, policy, adversary, jax.random.key(0)).adversary - low) / (high - low) - 1
    return member(game, "sequence", np.asarray(jnp.nan_to_num(units).round(6)).ravel())


def is_certain(game: Game) -> bool:
    """Whether nothing is random: neither starts nor what is executed."""
    if not isinstance(game, JaxGame):
        return False
    starts = jax.vmap(game.reset)(jax.random.split(jax.random.key(0), 2))
    outcomes = jax.eval_shape(lambda game: game.execute(game.agent.low, game.neutral), game).action.shape[0]
    return outcomes == 1 and bool((starts[0] == starts[1]).all())


@dataclass(frozen=True, eq=False)
class Trained(AbstractFound):
    """The adversary that an agent learned with."""

    agent: Agent

    def __call__(self, obs: Any, time: Any) -> Any:
        return self.agent.adversary(obs, time)

    def bind(self, env: Any, act: Any) -> Any:
        opponent = self.agent.opponent
        if not isinstance(opponent, Answer | Nobody):
            return jax.jit(self)
        play = opponent.on_host()
        return lambda obs, time: play(obs)

    def described(self) -> None:
        return None

    def save(self, folder: Any) -> None:
        self.agent.save(folder, adversary="trained")


def battery(search: AttackSearch) -> dict[str, Attack]:
    """The attacks that there are on a policy in its game."""
    game, effort = search.game, search.effort
    rows: dict[str, Attack] = {"constant": constant}
    if game.scope == "episode":
        rows |= {f"search-{points}": partial(zoom, points=points) for points in effort.lattices}
    else:
        rows |= {"random": random, "random-held": partial(random, hold=HELD)}
        rows |= {"bang-bang": bang_bang, "cross-entropy": cross_entropy}
        rows |= {"sequence": sequence} if effort.evolution else {}
        if effort.depths and can_plan(search.arena.env):
            rows |= {f"planning-{depth}": partial(planning, depth=depth) for depth in effort.depths}
        rows |= {"sac": sac} if effort.sac else {}
        pure = isinstance(search.arena, JaxArena) and policy_of(search.arena.policy).fresh() is None  # no memory
        if pure and isinstance(game, Pendulum):
            rows |= {f"best-response-{grid}": partial(best_response, grid=grid) for grid in effort.grids}
        if pure and is_certain(game):
            rows |= {f"forward-{cells}": partial(forward, cells=cells) for cells in effort.cells}
    if learned_with_somebody(search.policy):
        here, there = game.options(), search.policy.game.options()
        if all(there.get(name) == here.get(name) for name in ("setting", "mixture")):  # its adversary means the same
            rows["trained"] = lambda *_: [Trained(search.policy)]
    return rows


def learned_with_somebody(policy: Any) -> bool:
    return isinstance(policy, Agent) and EVERY[policy.config.algo].deployed != "none"


def can_plan(env: Any) -> bool:
    """Whether the state of the system can be saved."""
    env.reset(seed=0)
    try:
        env.get_state()
    except UsageError:
        return False
    return True
