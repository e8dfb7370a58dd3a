"""The policies that critics stand for: max-min look-ahead in the model.

A network that imitated them would round off what the critics' edges say; asking the model at execution keeps it.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rhucrl.envs.game import Game
from rhucrl.hallucination import choose_eta, hallucinate
from rhucrl.models.base import AbstractModel
from rhucrl.networks.critics import CriticFunction
from rhucrl.networks.policies import AbstractAdversary, AbstractPolicy
from rhucrl.solvers.base import SolverNumbers
from rhucrl.solvers.look_ahead.backup import settle, slope, stateless, unit, value

HOLDS = (0.5, 0.25, 0.25)  # weights of holding a pair of candidates for 1, 2, 3 steps: a lambda-return, lambda = .5


class CriticPlayer(eqx.Module):
    """What both players share: a critic of a hallucinated problem, and the means to look one step ahead in it."""

    game: Game
    model: AbstractModel
    critic: CriticFunction
    sign: Array
    numbers: SolverNumbers
    adversary: Float[Array, "k qbar"]

    def origin(self) -> Float[Array, " p"]:
        return self.game.starts(jax.random.key(0), 1)[0]

    def judge(self, obs: Float[Array, "*b p"], agent: Float[Array, "*b a q"]) -> Float[Array, "*b a k"]:
        """The value of every pair of candidates, averaged over how long it is held.

        Held, differences between pairs grow and the critic's noise does not; played once, nothing is lost of what a
        quick change of mind can win. Either alone loses games that the mean wins.
        """
        game, numbers = self.game, self.numbers
        gradient = slope(game, self.critic, obs, self.adversary)
        pairs = (*agent.shape[:-1], self.adversary.shape[0])
        agent = jnp.broadcast_to(agent[..., :, None, :], (*pairs, agent.shape[-1]))
        adversary = jnp.broadcast_to(self.adversary, (*pairs, self.adversary.shape[-1]))
        probability, executed = game.execute(agent, adversary)
        s = jnp.broadcast_to(obs[..., None, None, :], (*executed.shape[:-1], obs.shape[-1]))

        def step(carry: tuple[Array, Array, Array, Array], share: Array):
            s, total, weight, judged = carry
            prediction = self.model.predict(s, executed, adversary)
            eta = choose_eta(unit(game), prediction, gradient[..., None, :, :], self.sign, numbers.beta)
            following = game.project(hallucinate(prediction, eta, numbers.beta, None))
            total = total + weight * game.reward(s, executed, adversary, following)
            weight = weight * numbers.discount * (1 - game.over(following))
            judged = judged + share * (total + weight * value(game, self.critic, following, self.adversary))
            return (following, total, weight, judged), None

        zero = jnp.zeros(executed.shape[:-1])
        shares = jnp.array(HOLDS if executed.shape[0] == 1 else (1.0,))
        (*_, judged), _ = jax.lax.scan(step, (s, zero, zero + 1, zero), shares)
        return jnp.tensordot(probability, judged, 1)


class AgentPolicy(AbstractPolicy):
    """pi(s): the candidate with the best worst case."""

    player: CriticPlayer
    candidates: Float[Array, "a q"]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        player = self.player
        q = player.judge(obs, jnp.broadcast_to(self.candidates, (*obs.shape[:-1], *self.candidates.shape)))
        weights = stateless(player.game, player.critic, player.origin(), player.adversary)
        return self.candidates[settle(player.game, q, weights)[0]]

    def fresh(self) -> None:
        return None

    def act(self, memory: None, obs: Float[Array, " p"]) -> tuple[None, Float[Array, " q"]]:
        return memory, self(obs)


class AdversaryPolicy(AbstractAdversary):
    """pibar(s): the candidate that is worst for the agent's action; of episode scope, one value for all states."""

    player: CriticPlayer

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        player = self.player
        if player.game.scope == "episode":
            worst = value(player.game, player.critic, player.origin(), player.adversary).argmin()
            return jnp.broadcast_to(player.adversary[worst], (*obs.shape[:-1], player.adversary.shape[-1]))
        return player.adversary[player.judge(obs, action[..., None, :])[..., 0, :].argmin(-1)]

    def reply(self, memory: Any, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
        return self(obs, action)
