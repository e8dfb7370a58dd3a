"""One real episode: compiled where the system is JAX, step by step on the host otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rhucrl.envs.game import Box, JaxGame
from rhucrl.envs.game import play as play_step
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.networks.policies import AbstractAdversary, AbstractPolicy, Answer, Gaussian, NetworkOrRule, Nobody
from rhucrl.replay import Transitions
from rhucrl.runtime.compilation import compiled

HOLD = 10  # steps for which a random action of the first episodes of a JAX game is held

Acting = Callable[[np.ndarray, np.random.Generator], np.ndarray]
JaxPlayers = Callable[[Any, Array, Array], tuple[Any, Array, Array]]
"""From the agent's memory, the observation and the step to the next memory and both actions."""


class Episode(NamedTuple):
    """`count` transitions, filled up to the horizon with rows that mean nothing, and their undiscounted return."""

    transitions: Transitions
    count: Int[Array, ""]
    earned: Float[Array, ""]


class Trajectory(NamedTuple):
    """One episode in JAX, a row per step: what both players saw, what the policy `asked` for, what came of it.

    An episode that terminates stays where it ended, no longer `alive`, and earns nothing more.
    """

    obs: Float[Array, "t p"]
    asked: Float[Array, "t q"]
    action: Float[Array, "t q"]
    adversary: Float[Array, "t qbar"]
    executed: Float[Array, "t q"]
    reward: Float[Array, " t"]
    following: Float[Array, "t p"]
    alive: Bool[Array, " t"]


def scan_steps(game: JaxGame, players: JaxPlayers, memory: Any, start: PRNGKeyArray, draws: PRNGKeyArray) -> Trajectory:
    """One episode as one `lax.scan`; `start` draws where it begins, `draws` what probabilistic mixtures execute."""

    def step(carry: tuple[Array, Array, Any], time: Array) -> tuple[tuple[Array, Array, Any], Trajectory]:
        system, alive, memory = carry
        obs = game.observe(system)
        memory, asked, adversary = players(memory, obs, time)
        action, adversary = game.agent.clip(asked), game.adversary.clip(adversary)
        played = play_step(game, system, action, adversary, jax.random.fold_in(draws, time))
        system, reward = jnp.where(alive, played.state, system), jnp.where(alive, played.reward, 0.0)
        following = game.observe(system)
        row = Trajectory(obs, asked, action, adversary, played.executed, reward, following, alive)
        return (system, alive & ~game.terminated(following), memory), row

    carry = game.reset(start), jnp.bool_(True), memory
    return jax.lax.scan(step, carry, jnp.arange(game.horizon))[1]


@compiled("explore", often=False)
def play_in_jax(
    game: JaxGame, policy: AbstractPolicy, opponent: AbstractAdversary, explore: bool, key: PRNGKeyArray
) -> Episode:
    """With the selected pair, both fixed (`explore`: with random actions)."""
    keys = jax.random.split(key, 4)

    def uniform(box: Box, key: PRNGKeyArray) -> Array:
        return box.place(jax.random.uniform(key, (box.size,), minval=-1.0))

    def wander(memory: Any, obs: Array, time: Array) -> tuple[Any, Array, Array]:
        change = time // HOLD if game.scope == "step" else 0
        action = uniform(game.agent, jax.random.fold_in(keys[1], time // HOLD))
        return memory, action, uniform(game.adversary, jax.random.fold_in(keys[2], change))

    def selected(memory: Any, obs: Array, time: Array) -> tuple[Any, Array, Array]:
        memory, action = policy.act(memory, obs)
        return memory, action, opponent.reply(memory, obs, action)

    players, memory = (wander, None) if explore else (selected, policy.fresh())
    path = scan_steps(game, players, memory, keys[0], keys[3])
    rows = Transitions(path.obs, path.executed, path.adversary, path.following)
    return Episode(rows, path.alive.sum(), path.reward.sum())


class Step(NamedTuple):
    """One step of an episode on the host."""

    obs: np.ndarray
    action: np.ndarray
    adversary: np.ndarray
    executed: np.ndarray
    reward: float
    following: np.ndarray
    terminated: bool


class HostPlayers(NamedTuple):
    """Two players on the host, for one episode; the adversary is asked after the agent has acted."""

    act: Acting
    answer: Acting


def steps(
    env: ZeroSumEnv, act: Callable[[np.ndarray], Any], answer: Callable[[np.ndarray], Any], seed: int
) -> Iterator[Step]:
    """An episode step by step; the seed decides everything random in the environment.

    The adversary answers after the agent has acted: at every step, or (episode scope) at the first one alone.
    """
    obs, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = act(obs)
        if env.once and env.time == 0:
            env.hold(answer(obs))
        adversary = env.held if env.once else answer(obs)
        following, reward, terminated, truncated, info = env.step({"agent": action, "adversary": adversary})
        yield Step(obs, action, adversary, info["executed_action"], reward, following, terminated)
        obs, over = following, terminated or truncated


def seed_of(key: PRNGKeyArray) -> int:
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


def play_on_host(env: ZeroSumEnv, players: Callable[[], HostPlayers] | None, key: PRNGKeyArray) -> Episode:
    """As many steps as an episode has, on a simulator; where it ends before, it begins again.

    The key seeds everything random in it. Without players: random actions. What is earned is the mean over the times
    that it went to its end (or that it began, where it never did).
    """
    seed, game = seed_of(key), env.game
    generator = np.random.default_rng(seed)

    def wander(box: Box) -> Acting:
        low, high = np.asarray(box.low), np.asarray(box.high)
        return lambda obs, generator: generator.uniform(low, high)

    def episode(players: HostPlayers, seed: int) -> Iterator[Step]:
        return steps(env, lambda obs: players.act(obs, generator), lambda obs: players.answer(obs, generator), seed)

    begin = players or (lambda: HostPlayers(wander(game.agent), wander(game.adversary)))
    report = game.report if game.learned else lambda obs, reward, terminated: obs
    rows, returns = [], []
    for attempt in itertools.count():
        seen, earned = None, 0.0
        for step in itertools.islice(episode(begin(), seed + attempt), game.horizon - len(rows)):
            before = report(step.obs, 0.0, False) if seen is None else seen
            seen = report(step.following, step.reward, step.terminated)
            rows.append((before, step.executed, step.adversary, seen))
            earned += step.reward
        full = len(rows) == game.horizon
        if not full or step.terminated or not returns:
            returns.append(earned)
        if full:
            break
    columns = (np.stack(column).astype(np.float32) for column in zip(*rows, strict=True))
    return Episode(Transitions(*map(jnp.asarray, columns)), jnp.int32(len(rows)), jnp.float32(np.mean(returns)))


def acting(policy: AbstractPolicy, opponent: AbstractAdversary) -> HostPlayers:
    """Networks in NumPy, the agent's action drawn; others compiled, both players in one program."""
    if isinstance(policy, Gaussian) and isinstance(opponent, Answer | NetworkOrRule | Nobody):
        agent, answer, size = policy.on_host(), opponent.on_host(), policy.box.size
        noise = lambda generator: generator.standard_normal(size, np.float32)  # noqa: E731
        return HostPlayers(lambda obs, generator: agent(obs, noise(generator)), lambda obs, generator: answer(obs))
    memory, adversary = policy.fresh(), np.zeros(0)

    def act(obs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        nonlocal memory, adversary
        memory, action, adversary = _both(policy, opponent, memory, jnp.asarray(obs, jnp.float32))
        return np.asarray(action)

    return HostPlayers(act, lambda obs, generator: np.asarray(adversary))


@jax.jit
def _both(policy: AbstractPolicy, opponent: AbstractAdversary, memory: Any, obs: Array) -> tuple[Any, Array, Array]:
    memory, action = policy.act(memory, obs)
    return memory, action, opponent.reply(memory, obs, action)


def predict(
    policy: AbstractPolicy, obs: np.ndarray, memory: Any = None, episode_start: Any = None, noise: Any = None
) -> tuple[np.ndarray, Any]:
    """The action at one observation or a batch of them, and the memory after it; None begins an episode.

    `episode_start` says at which observations an episode begins: their memory is a fresh one. With `noise` a policy
    that is a distribution draws its action from it; every other action is the mode.
    """
    if noise is not None and isinstance(policy, Gaussian):
        return np.asarray(_draw(policy, obs, noise)), memory
    if (begun := policy.fresh()) is None:
        return np.asarray(_play(policy, obs)), memory
    begun = jax.tree.map(lambda x: jnp.broadcast_to(x, (*obs.shape[:-1], *x.shape)), begun)
    if memory is None:
        memory = begun
    elif episode_start is not None:
        starts = np.asarray(episode_start, bool).reshape(obs.shape[:-1])

        def renewed(new: Array, old: Array) -> Array:
            return jnp.where(starts.reshape(*starts.shape, *[1] * (new.ndim - starts.ndim)), new, old)

        memory = jax.tree.map(renewed, begun, memory)
    memory, action = _recall(policy, memory, obs)
    return np.asarray(action), memory


def checked(observation: Any, size: int) -> Float[np.ndarray, "*b p"]:
    """One observation or a batch of them, if it is one: a network would use what fits of any other, or pass NaN on."""
    try:
        obs = np.asarray(observation, np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"a {type(observation).__name__} is no observation: give an array of {size} numbers") from None
    if obs.ndim not in (1, 2) or obs.shape[-1] != size:
        raise UsageError(f"the observation has shape {obs.shape}; this policy sees ({size},), or a batch of such")
    if not np.isfinite(obs).all():
        raise UsageError(f"the observation is not finite: {obs[~np.isfinite(obs).all(-1)].tolist() or obs.tolist()}")
    return obs


_play = jax.jit(lambda policy, obs: policy(obs))
_draw = jax.jit(lambda policy, obs, noise: policy.sample(obs, noise)[0])


@jax.jit
def _recall(policy: AbstractPolicy, memory: Any, obs: Float[Array, "*b p"]) -> tuple[Any, Float[Array, "*b q"]]:
    step = policy.act
    for _ in obs.shape[:-1]:
        step = jax.vmap(step)
    return step(memory, obs)
