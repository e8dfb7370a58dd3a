"""The policies that critics stand for: max-min look-ahead in the model.

A network that imitated them would round off what the critics' edges say; asking the model at execution keeps it.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rhucrl.envs.game import Game
from rhucrl.models.prediction import Model
from rhucrl.solvers.backup import Numbers, consider, look_ahead, settle, slope, stateless, value
from rhucrl.solvers.critic import Critic


class Player(eqx.Module):
    """What both players share: a critic of a hallucinated problem, and the means to look one step ahead in it."""

    game: Game
    model: Model
    critic: Critic
    sign: Array
    numbers: Numbers
    adversary: Float[Array, "k qbar"]

    def origin(self) -> Float[Array, " p"]:
        return self.game.observe(self.game.reset(jax.random.key(0)))

    def judge(self, obs: Float[Array, "*b p"], agent: Float[Array, "*b a q"]) -> Float[Array, "*b a k"]:
        considered = consider(self.game, self.model, obs, agent, self.adversary)
        gradient = slope(self.game, self.critic, obs, self.adversary)
        return look_ahead(
            self.game, self.critic, considered, self.adversary, gradient, self.sign, self.numbers, jnp.zeros_like(obs)
        )


class AgentPolicy(eqx.Module):
    """pi(s): the candidate with the best worst case."""

    player: Player
    candidates: Float[Array, "a q"]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        player = self.player
        q = player.judge(obs, jnp.broadcast_to(self.candidates, (*obs.shape[:-1], *self.candidates.shape)))
        weights = stateless(player.game, player.critic, player.origin(), player.adversary)
        return self.candidates[settle(player.game, q, weights)[0]]


class AdversaryPolicy(eqx.Module):
    """pibar(s): the candidate that is worst for the agent's action; of episode scope, one value for all states."""

    player: Player

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        player = self.player
        if player.game.scope == "episode":
            worst = value(player.game, player.critic, player.origin(), player.adversary).argmin()
            return jnp.broadcast_to(player.adversary[worst], (*obs.shape[:-1], player.adversary.shape[-1]))
        return player.adversary[player.judge(obs, action[..., None, :])[..., 0, :].argmin(-1)]
