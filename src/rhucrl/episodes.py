"""One real episode: compiled where the system is JAX, step by step on the host otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rhucrl.compilation import compiled
from rhucrl.envs.face import ZeroSumEnv
from rhucrl.envs.game import Box, JaxGame
from rhucrl.envs.game import play as play_step
from rhucrl.replay import Transitions
from rhucrl.solvers.policies import act, fresh, reply

HOLD = 10  # steps for which a random action of the first episodes of a JAX game is held

Acting = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


class Episode(NamedTuple):
    """`count` transitions, filled up to the horizon with rows that mean nothing, and their undiscounted return."""

    transitions: Transitions
    count: Int[Array, ""]
    earned: Float[Array, ""]


@compiled("explore", often=False)
def play_in_jax(game: JaxGame, policy: Any, opponent: Any, explore: bool, key: PRNGKeyArray) -> Episode:
    """With the selected pair, both fixed (`explore`: with random actions)."""
    keys = jax.random.split(key, 4)

    def wander(box: Box, key: PRNGKeyArray) -> Array:
        return box.place(jax.random.uniform(key, (box.size,), minval=-1.0))

    def step(carry: tuple[Array, Array, Any], time: Array):
        system, alive, memory = carry
        obs = game.observe(system)
        if explore:
            action = wander(game.agent, jax.random.fold_in(keys[1], time // HOLD))
            change = time // HOLD if game.scope == "step" else 0
            adversary = wander(game.adversary, jax.random.fold_in(keys[2], change))
        else:
            memory, action = act(policy, memory, obs)
            adversary = reply(opponent, memory, obs, action)
        played = play_step(game, system, action, adversary, jax.random.fold_in(keys[3], time))
        following = game.observe(played.state)
        row = Transitions(obs, played.executed, adversary, following)
        return (played.state, alive & ~game.terminated(following), memory), (row, alive, played.reward)

    start = game.reset(keys[0]), jnp.bool_(True), () if explore else fresh(policy)
    _, (rows, alive, rewards) = jax.lax.scan(step, start, jnp.arange(game.horizon))
    return Episode(rows, alive.sum(), jnp.where(alive, rewards, 0.0).sum())


class Step(NamedTuple):
    """One step of an episode on the host."""

    obs: np.ndarray
    action: np.ndarray
    adversary: np.ndarray
    executed: np.ndarray
    reward: float
    following: np.ndarray
    terminated: bool


def steps(env: ZeroSumEnv, act: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], seed: int) -> Iterator[Step]:
    """An episode step by step; the seed decides everything random in the environment."""
    once, over = env.game.scope == "episode", False
    obs, _ = env.reset(seed=seed)
    if once:
        env.hold(act(obs)[1].astype(np.float32))
    while not over:
        action, adversary = act(obs)
        adversary = env.held if once else adversary
        following, reward, terminated, truncated, told = env.step({"agent": action, "adversary": adversary})
        yield Step(obs, action, adversary, told["executed_action"], reward, following, terminated)
        obs, over = following, terminated or truncated


def seed_of(key: PRNGKeyArray) -> int:
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


def play_on_host(env: ZeroSumEnv, acting: Acting | None, key: PRNGKeyArray) -> Episode:
    """The same on a simulator; the key seeds everything random in it. Without `acting`: random actions."""
    seed, game = seed_of(key), env.game
    generator = np.random.default_rng(seed)
    boxes = [(np.asarray(box.low), np.asarray(box.high)) for box in (game.agent, game.adversary)]

    def wander(obs: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        mine, theirs = (generator.uniform(low, high) for low, high in boxes)
        return mine, theirs

    act, rows, earned = acting or wander, [], 0.0
    report = game.report if game.learned else lambda obs, reward, terminated: obs
    seen = None
    for step in steps(env, lambda obs: act(obs, generator), seed):
        before = report(step.obs, 0.0, False) if seen is None else seen
        seen = report(step.following, step.reward, step.terminated)
        rows.append((before, step.executed, step.adversary, seen))
        earned += step.reward
    padding = [rows[-1]] * (game.horizon - len(rows))
    columns = (np.stack(column).astype(np.float32) for column in zip(*rows, *padding, strict=True))
    return Episode(Transitions(*map(jnp.asarray, columns)), jnp.int32(len(rows)), jnp.float32(earned))
