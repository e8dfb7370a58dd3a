"""Episodes of the real game: a policy and an adversary played against each other as one `lax.scan`.

An agent policy is a pure batched callable `policy(obs) -> action`, and may have a memory; an adversary is a pure
batched callable `adversary(obs, time) -> action`, `time` being the step. Returns are undiscounted, over the game's
horizon (`eq:performance`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from rhucrl.envs.game import Game, demand_jax
from rhucrl.networks.policies import policy_of
from rhucrl.play import Trajectory, scan_steps

Keys = Key[Array, " k"]
Policy = Callable[[Float[Array, "*b p"]], Float[Array, "*b q"]]
Adversary = Callable[[Float[Array, "*b p"], Int[Array, ""]], Float[Array, "*b qbar"]]


class Constant(eqx.Module):
    """The adversary that always plays one value; all that an `episode`-scope adversary can do."""

    value: Float[Array, " qbar"] = eqx.field(converter=jnp.asarray)

    def __call__(self, obs: Array, time: Array) -> Array:
        return jnp.broadcast_to(self.value, (*obs.shape[:-1], self.value.shape[-1]))


@eqx.filter_jit
def rollout(game: Game, policy: Policy, adversary: Adversary | None, key: PRNGKeyArray) -> Trajectory:
    """One episode of `policy` against `adversary`; `key` draws the start and what probabilistic mixtures execute.

    In scope `episode` the adversary is asked once, at the start. None is nobody, on the system without its adversary's
    strength.
    """
    if adversary is None:
        game, adversary = game.nominal(), Constant(game.neutral)
    game, agent = demand_jax(game), policy_of(policy)
    start, draws = jax.random.split(key)
    held = adversary(game.observe(game.reset(start)), jnp.int32(0)) if game.scope == "episode" else None

    def players(memory: Any, obs: Array, time: Array) -> tuple[Any, Array, Array]:
        memory, action = agent.act(memory, obs)
        return memory, action, adversary(obs, time) if held is None else held

    return scan_steps(game, players, agent.fresh(), start, draws)


def episode_return(game: Game, policy: Policy, adversary: Adversary | None, key: PRNGKeyArray) -> Float[Array, ""]:
    """The undiscounted return of one episode: the agent's gain, the adversary's loss."""
    return rollout(game, policy, adversary, key).reward.sum()


@eqx.filter_jit
def mean_return(game: Game, policy: Policy, adversary: Adversary | None, keys: Keys) -> Float[Array, ""]:
    return jax.vmap(lambda key: episode_return(game, policy, adversary, key))(keys).mean()
