"""The policies that critics stand for: max-min look-ahead in the model.

A network that imitated them would round off what the critics' edges say; asking the model at execution keeps it.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rhucrl.envs.game import Game
from rhucrl.hallucination import hallucinate
from rhucrl.models.prediction import Model
from rhucrl.solvers.backup import Numbers, choose_eta, settle, slope, stateless, value
from rhucrl.solvers.critic import Critic

HOLD = 3  # steps for which a pair of candidates is held when the players look ahead


class Player(eqx.Module):
    """What both players share: a critic of a hallucinated problem, and the means to look one step ahead in it."""

    game: Game
    model: Model
    critic: Critic
    sign: Array
    numbers: Numbers
    adversary: Float[Array, "k qbar"]

    def origin(self) -> Float[Array, " p"]:
        return self.game.starts(jax.random.key(0), 1)[0]

    def judge(self, obs: Float[Array, "*b p"], agent: Float[Array, "*b a q"]) -> Float[Array, "*b a k"]:
        """The value of every pair of candidates, held for HOLD steps: differences grow, the critic's noise does not."""
        game, numbers = self.game, self.numbers
        gradient = slope(game, self.critic, obs, self.adversary)
        pairs = (*agent.shape[:-1], self.adversary.shape[0])
        agent = jnp.broadcast_to(agent[..., :, None, :], (*pairs, agent.shape[-1]))
        adversary = jnp.broadcast_to(self.adversary, (*pairs, self.adversary.shape[-1]))
        probability, executed = game.execute(agent, adversary)
        s = jnp.broadcast_to(obs[..., None, None, :], (*executed.shape[:-1], obs.shape[-1]))

        def step(_: int, carry: tuple[Array, Array, Array]):
            s, total, weight = carry
            prediction = self.model.predict(s, executed, adversary)
            eta = choose_eta(game, prediction, gradient[..., None, :, :], self.sign, numbers.beta)
            following = game.project(hallucinate(prediction, eta, numbers.beta, None))
            total = total + weight * game.reward(s, executed, adversary, following)
            return following, total, weight * numbers.discount * (1 - game.terminated(following))

        zero = jnp.zeros(executed.shape[:-1])
        steps = HOLD if executed.shape[0] == 1 else 1
        s, total, weight = jax.lax.fori_loop(0, steps, step, (s, zero, zero + 1))
        return jnp.tensordot(probability, total + weight * value(game, self.critic, s, self.adversary), 1)


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


class Nobody(eqx.Module):
    """The adversary that changes nothing."""

    neutral: Float[Array, " qbar"]

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        return jnp.broadcast_to(self.neutral, (*obs.shape[:-1], self.neutral.shape[0]))
