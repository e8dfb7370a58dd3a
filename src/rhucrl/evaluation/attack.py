"""The worst case of a policy (`eq:performance` minimised over adversaries), searched by several attacks.

No single search finds the worst adversary of every policy, so a battery of them runs and the minimum counts.
Each attack hands over an adversary, and only the return of replaying that adversary on the true game is
reported: a number of this module is always one that a policy really got.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.face import ZeroSumEnv
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.pendulum import Pendulum
from rhucrl.errors import UsageError, unknown
from rhucrl.evaluation import host
from rhucrl.evaluation.oracle import best_response
from rhucrl.evaluation.rollouts import Adversary, Constant, Keys, Policy, mean_return, nominal_return, returns

Budget = Literal["quick", "standard", "thorough"]
Family = Callable[[Game, Array], Adversary]


class Progress(Protocol):
    def update(self, n: int, text: str = "") -> None: ...


HIDDEN = 8  # units of an adversary network


class Effort(NamedTuple):
    """How hard to search; the number of policy evaluations grows with every entry."""

    grids: tuple[int, ...]  # of the best responses
    random: int  # random adversaries
    restarts: int  # cross-entropy searches
    population: int  # networks in a generation of one search
    generations: int
    lattices: tuple[int, ...]  # values of an episode's parameter, over all of its dimensions
    zooms: int  # refinements around the worst of them
    episodes: int  # averaged where the execution is random


EFFORTS: dict[str, Effort] = {
    "quick": Effort((200,), 16, 2, 16, 4, (49,), 3, 8),
    "standard": Effort((200, 400), 64, 3, 64, 10, (49, 225), 3, 16),
    "thorough": Effort((200, 400), 256, 6, 128, 25, (49, 225, 1681), 3, 32),
}


class WorstCase(NamedTuple):
    """The return without an adversary, the worst one and who found it, the attacks' returns and adversaries."""

    nominal: float
    worst: float
    attack: str
    attacks: dict[str, float]
    adversaries: dict[str, Any]

    @property
    def adversary(self) -> Any:
        """The worst one."""
        return self.adversaries[self.attack]


class Sweep(NamedTuple):
    """The worst case at each strength."""

    strengths: tuple[float, ...]
    cases: tuple[WorstCase, ...]

    @property
    def worst(self) -> tuple[float, ...]:
        return tuple(case.worst for case in self.cases)


class ParameterSweep(NamedTuple):
    """The return at each value of an adversary that is fixed for the episode."""

    values: Float[Array, "n qbar"]
    returns: Float[Array, " n"]


class Random(eqx.Module):
    """The adversary that plays an independent uniform action each step."""

    game: Game
    key: PRNGKeyArray

    def __call__(self, obs: Array, time: Array) -> Array:
        box = self.game.adversary
        shape = (*obs.shape[:-1], box.size)
        return box.place(jax.random.uniform(jax.random.fold_in(self.key, time), shape, minval=-1.0))


class Network(eqx.Module):
    """A state-feedback adversary with one hidden tanh layer, its weights in one vector."""

    game: Game
    weights: Float[Array, " w"]

    def __call__(self, obs: Array, time: Array) -> Array:
        inputs, outputs = obs.shape[-1], self.game.adversary.size
        cuts = list(itertools.accumulate((HIDDEN * inputs, HIDDEN, outputs * HIDDEN)))
        first, bias, second, offset = jnp.split(self.weights, cuts)
        hidden = jnp.tanh(obs / self.game.scale @ first.reshape(inputs, HIDDEN) + bias)
        return self.game.adversary.place(jnp.tanh(hidden @ second.reshape(HIDDEN, outputs) + offset))


class Straying(eqx.Module):
    """An adversary that follows a guide but plays a vertex of its box at random moments.

    Where a policy jumps, a best response on a grid is a little wrong; the worst of many strays mends that.
    """

    guide: Adversary
    game: Game
    key: PRNGKeyArray

    def __call__(self, obs: Array, time: Array) -> Array:
        moment, vertex = jax.random.split(jax.random.fold_in(self.key, time))
        rate = jax.random.uniform(self.key, maxval=0.2)  # each stray has a rate of its own
        sides = jnp.sign(jax.random.normal(vertex, (self.game.adversary.size,)))
        strays = jax.random.uniform(moment) < rate
        return jnp.where(strays, self.game.adversary.place(sides), self.guide(obs, time))


def network_size(game: Game) -> int:
    """The number of weights of an adversary network of this game."""
    inputs, outputs = game.observation.size, game.adversary.size
    return (inputs + 1) * HIDDEN + (HIDDEN + 1) * outputs


def constant(game: Game, value: Array) -> Constant:
    return Constant(value)


def stray(guide: Adversary, game: Game, key: PRNGKeyArray) -> Straying:
    return Straying(guide, game, key)


def lattice(game: Game, points: int) -> Float[Array, "n qbar"]:
    """About `points` evenly spaced adversary actions, over the closed box, the vertices among them."""
    size = game.adversary.size
    side = jnp.linspace(-1, 1, max(2, round(points ** (1 / size))))
    return game.adversary.place(jnp.stack(jnp.meshgrid(*[side] * size), -1).reshape(-1, size))


def extremes(game: Game) -> Float[Array, "n qbar"]:
    """All vertices of the adversary's box, and its neutral action."""
    return jnp.concatenate([lattice(game, 2**game.adversary.size), game.neutral[None]])


@eqx.filter_jit
def worst_of(game: Game, policy: Policy, family: Family, parameters: Array, keys: Keys) -> Adversary:
    """The worst adversary of a family for the policy, among some parameters."""
    return family(game, parameters[returns(game, policy, family, parameters, keys).argmin()])


@eqx.filter_jit
def cross_entropy(game: Game, policy: Policy, effort: Effort, key: PRNGKeyArray, keys: Keys) -> Network:
    """The worst network found by cross-entropy searches: refit a Gaussian to the worst eighth, repeatedly.

    The restarts run side by side in one program; the worst network ever tried wins.
    """
    size, elite = network_size(game), max(2, effort.population // 8)

    def generation(search: tuple[Array, Array, Array, Array], key: PRNGKeyArray) -> tuple[tuple, None]:
        mean, spread, champion, record = search
        noise = jax.random.normal(key, (effort.restarts, effort.population, size))
        weights = mean[:, None] + spread[:, None] * noise
        gains = returns(game, policy, Network, weights.reshape(-1, size), keys).reshape(weights.shape[:2])
        order = jnp.argsort(gains, axis=1)[:, :elite, None]
        chosen = jnp.take_along_axis(weights, order, axis=1)
        low, found = gains.min(), weights.reshape(-1, size)[gains.argmin()]
        champion = jnp.where(low < record, found, champion)
        return (chosen.mean(1), chosen.std(1) + 0.05, champion, jnp.minimum(low, record)), None

    zeros = jnp.zeros((effort.restarts, size))
    start = zeros, zeros + 2.0, zeros[0], jnp.array(jnp.inf)
    (_, _, champion, _), _ = jax.lax.scan(generation, start, jax.random.split(key, effort.generations))
    return Network(game, champion)


@eqx.filter_jit
def zoom(game: Game, policy: Policy, points: int, zooms: int, keys: Keys) -> Float[Array, "levels qbar"]:
    """The worst values of an episode's parameter: of a lattice over the box, then of ever finer ones around the last.

    All levels are kept, because the return may jump and its narrowest spikes not survive a replay's rounding.
    """
    box, spread = game.adversary, lattice(game, points) - game.neutral
    side = max(2, round(points ** (1 / box.size)))

    def finer(value: Array, shrink: Array) -> tuple[Array, Array]:
        tried = jnp.concatenate([value[None], box.clip(value + shrink * spread)])
        worst = tried[returns(game, policy, constant, tried, keys).argmin()]
        return worst, worst

    shrinks = (2 / (side - 1)) ** jnp.arange(zooms + 1)
    return jax.lax.scan(finer, game.neutral, shrinks)[1]


def attacks(
    policy: Policy, game: Game, effort: Effort, key: PRNGKeyArray, keys: Keys
) -> Iterator[tuple[str, Adversary]]:
    """The battery: the name of each attack and the adversary it found, one at a time."""
    yield "constant", worst_of(game, policy, constant, extremes(game), keys)
    if game.scope == "episode":
        for points in effort.lattices:
            for level, value in enumerate(zoom(game, policy, points, effort.zooms, keys)):
                yield f"search-{points}-{level}", Constant(value)
        return
    ours, theirs = jax.random.split(key)
    yield "random", worst_of(game, policy, Random, jax.random.split(ours, effort.random), keys)
    yield "cross-entropy", cross_entropy(game, policy, effort, theirs, keys)
    if isinstance(game, Pendulum):
        for grid in effort.grids:
            yield f"best-response-{grid}", (guide := best_response(game, policy, grid)[1])
            family = eqx.Partial(stray, guide)
            yield f"straying-{grid}", worst_of(game, policy, family, jax.random.split(ours, effort.random), keys)


def episodes(game: Game, effort: Effort) -> int:
    """How many episodes one return takes: one, unless what is executed is random."""
    outcomes = jax.eval_shape(lambda game: game.execute(game.agent.low, game.neutral), game).action.shape[0]
    return effort.episodes if outcomes > 1 else 1


def plain(policy: Any, game: Any) -> tuple[Policy, Game]:
    """The policy of an agent and the game of an environment."""
    return getattr(policy, "policy", policy), getattr(game, "game", game)


class Suite(NamedTuple):
    """What a worst case needs: the attacks, one at a time, the mean return against an adversary, and that of nobody."""

    attacks: Iterator[tuple[str, Any]]
    replay: Callable[[Any], Any]
    nominal: Callable[[], Any]


def compiled_suite(policy: Policy, game: JaxGame, budget: Budget, seed: int, progress: Progress | None) -> Suite:
    """The attacks on a game that is compiled."""
    effort = EFFORTS[budget]
    search, seen, unseen = jax.random.split(jax.random.key(seed), 3)
    seen, unseen = (jax.random.split(key, episodes(game, effort)) for key in (seen, unseen))

    def shown() -> Iterator[tuple[str, Adversary]]:
        for done, (name, adversary) in enumerate(attacks(policy, game, effort, search, seen), 1):
            yield name, adversary
            if progress is not None:
                progress.update(done, name)

    return Suite(
        shown(), lambda adversary: mean_return(game, policy, adversary, unseen),
        lambda: nominal_return(game, policy, unseen),
    )  # fmt: skip


def host_suite(policy: Any, env: ZeroSumEnv, budget: Budget, seed: int, progress: Progress | None) -> Suite:
    """The attacks on a game whose episodes are played step by step."""
    effort, arena = host.HOST_EFFORTS[budget], host.Arena(policy, env, progress)
    unseen = host.seeds(seed, 1, effort.unseen)
    game: Any = env.game
    return Suite(
        host.attacks(arena, game, effort, seed), lambda adversary: arena.mean_return(adversary, unseen),
        lambda: arena.nominal_return(unseen),
    )  # fmt: skip


def rounds(game: Any, budget: Budget = "quick") -> int:
    """How far `worst_case` counts while it shows its progress: episodes on the host, otherwise attacks."""
    game = getattr(game, "game", game)
    if not isinstance(game, JaxGame):
        return host.planned(game, host.HOST_EFFORTS[known_budget(budget)])
    effort = EFFORTS[known_budget(budget)]
    if game.scope == "episode":
        return 1 + len(effort.lattices) * (effort.zooms + 1)
    return 3 + (2 * len(effort.grids) if isinstance(game, Pendulum) else 0)


def known_budget(budget: Budget) -> Budget:
    if budget not in EFFORTS:
        raise unknown("budget", str(budget), EFFORTS)
    return budget


def worst_case(
    policy: Any, env: Any, budget: Budget = "quick", seed: int = 0, progress: Progress | None = None
) -> WorstCase:
    """The worst return of `policy` in `env` that the attacks of a budget find; the same for the same seed.

    The policy is a function of observations, or has Stable-Baselines3's `predict`. A game that is compiled (the
    pendulum) may stand for its environment, and its policy has to be a pure JAX function. Where starts or executions
    are random, adversaries are searched on some episodes and replayed on others, so that the reported mean is not the
    luck of the search. `progress.update(n, text)` is told how far of `rounds(env, budget)` the attack is.
    """
    budget = known_budget(budget)
    if isinstance(getattr(env, "game", env), JaxGame):
        suite = compiled_suite(*plain(policy, env), budget, seed, progress)  # type: ignore[arg-type]
    else:
        suite = host_suite(policy, env, budget, seed, progress)
    worst, name, found, replayed = math.inf, "", {}, {}
    for attack, adversary in suite.attacks:
        found[attack], replayed[attack] = adversary, float(suite.replay(adversary))
        if not math.isfinite(replayed[attack]):
            raise UsageError(f"the return under attack {attack!r} is not finite: check the policy's actions")
        if replayed[attack] < worst:
            worst, name = replayed[attack], attack
    return WorstCase(float(suite.nominal()), worst, name, replayed, found)


def sweep(policy: Any, env: Any, strengths: Sequence[float], budget: Budget = "quick", seed: int = 0) -> Sweep:
    """The worst case as a function of the adversary's strength; every strength runs the same compiled programs."""

    def stronger(strength: float) -> Any:
        if isinstance(env, ZeroSumEnv):
            return env.at(strength)
        return eqx.tree_at(lambda game: game.strength, env, jnp.asarray(strength, env.strength.dtype))

    cases = tuple(worst_case(policy, stronger(strength), budget, seed) for strength in strengths)
    return Sweep(tuple(map(float, strengths)), cases)


def sweep_parameter(policy: Any, env: Any, points: int = 21, seed: int = 0) -> ParameterSweep:
    """The return at evenly spaced values over the closed range of the adversary's action, each held for an episode.

    `points` counts the values along each dimension of the adversary.
    """
    game = getattr(env, "game", env)
    values = lattice(game, points**game.adversary.size)
    if not isinstance(game, JaxGame):
        held = [np.asarray(value) for value in values]
        suite = host_suite(policy, env, "quick", seed, None)
        return ParameterSweep(values, jnp.asarray([suite.replay(lambda obs, time, x=x: x) for x in held]))
    policy, game = plain(policy, game)
    keys = jax.random.split(jax.random.key(seed), episodes(game, EFFORTS["quick"]))
    return ParameterSweep(values, returns(game, policy, constant, values, keys))
