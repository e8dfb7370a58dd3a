"""One backup of the hallucinated game, at any batch of states.

The agent's problem (`eq:rhucrl:learner`) is, state by state,

    V(s) = max_a min_abar max_eta  E[ r + gamma V(mu + beta eta sigma + omega) ],

since the adversary's policy sees s and knows pi(s), and eta sees both actions. The response to the agent
(`eq:rhucrl:adversary`) is the same backup with the agent's action frozen and eta minimising. Candidates decide
over a and abar. eta follows the critic's gradient (or its opposite): it is the exact maximiser of the linearised
critic, so no network is needed to represent it.

An adversary of scope `episode` does not see s: its one value is carried by the critics, V(s, abar), and the agent,
who does not see it either, plays against a distribution of values that weighs the bad ones most.

Axes are (*batch, a, k, p): agent's candidate, adversary's candidate, observation entry.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rhucrl.envs.game import Game, join
from rhucrl.hallucination import choose_eta, hallucinate
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.networks.critics import CriticFunction
from rhucrl.solvers.base import SolverNumbers

SOFTNESS = 0.1  # of the stateless adversary's choice, in units of the critics


class Considered(NamedTuple):
    """What every pair of candidates would do; a leading axis over the outcomes of the execution."""

    prediction: Prediction
    reward: Float[Array, "o *b a k"]
    probability: Float[Array, " o"]


def unit(game: Game) -> Array:
    """The reward that a critic's output of 1 stands for."""
    low, high = game.reward_range
    return (high - low) * game.horizon / 8


def features(game: Game, obs: Float[Array, "*#b p"], adversary: Float[Array, "*#b qbar"]) -> Float[Array, "*b d"]:
    """A critic's input: the state, and the adversary's value where it lasts for the episode."""
    x = obs / game.scale
    if game.scope == "step":
        return x
    box = game.adversary
    return join(x, (adversary - box.low) / jnp.maximum(box.high - box.low, 1e-6) * 2 - 1)


def value(game: Game, critic: CriticFunction, obs: Array, adversary: Array) -> Float[Array, "*b"]:
    """V in reward units, held inside what the rewards allow over a horizon."""
    low, high = game.reward_range
    return jnp.clip(unit(game) * critic(features(game, obs, adversary)), low * game.horizon, high * game.horizon)


def slope(game: Game, critic: CriticFunction, obs: Array, adversary: Float[Array, "k qbar"]) -> Float[Array, "*b m p"]:
    """The gradient of V at s: one per state, or (episode scope) per state and candidate."""
    if game.scope == "step":
        adversary = adversary[:1]

    def at(o: Array, abar: Array) -> Array:
        return jax.grad(lambda o: value(game, critic, game.project(o), abar))(o)

    flat = obs.reshape(-1, obs.shape[-1])
    gradient = jax.vmap(lambda o: jax.vmap(lambda abar: at(o, abar))(adversary))(flat)
    return gradient.reshape(*obs.shape[:-1], *gradient.shape[1:])


def consider(
    game: Game, model: AbstractModel, obs: Float[Array, "*b p"], agent: Float[Array, "*b a q"], adversary: Array
) -> Considered:
    """The model's predictions and the rewards at all pairs of candidates."""
    s = obs[..., None, None, :]
    pairs = (*agent.shape[:-1], adversary.shape[0])
    agent = jnp.broadcast_to(agent[..., :, None, :], (*pairs, agent.shape[-1]))
    adversary = jnp.broadcast_to(adversary, (*pairs, adversary.shape[-1]))
    probability, executed = game.execute(agent, adversary)
    prediction = model.predict(s, executed, adversary)
    return Considered(prediction, game.reward(s, executed, adversary, prediction.mean), probability)


def look_ahead(
    game: Game, critic: CriticFunction, considered: Considered, adversary: Array, slope: Array, sign: Array,
    numbers: SolverNumbers, noise: Array,
) -> Float[Array, "*b a k"]:  # fmt: skip
    """r + gamma V(s') for all pairs, in the model that eta hallucinates along `slope`; terminal states end the sum."""
    eta = choose_eta(unit(game), considered.prediction, slope[..., None, :, :], sign, numbers.beta)
    following = game.project(hallucinate(considered.prediction, eta, numbers.beta, noise[..., None, None, :]))
    alive = 1 - game.over(following)
    q = considered.reward + numbers.discount * alive * value(game, critic, following, adversary)
    return jnp.tensordot(considered.probability, q, 1)


def stateless(game: Game, critic: CriticFunction, obs: Array, adversary: Float[Array, "k qbar"]) -> Float[Array, " k"]:
    """The stateless adversary's distribution over its values: a soft minimum of V(s0, abar). Unused per step."""
    if game.scope == "step":
        return jnp.full(adversary.shape[0], 1 / adversary.shape[0])
    return jax.nn.softmax(-value(game, critic, obs, adversary) / (SOFTNESS * unit(game)))


def settle(game: Game, q: Float[Array, "*b a k"], weights: Array) -> tuple[Array, Array, Float[Array, "*b m"]]:
    """The agent's candidate, the adversary's answer to it, and the value (episode scope: one per adversary's value)."""
    judged = q.min(-1) if game.scope == "step" else q @ weights
    a = judged.argmax(-1)
    row = jnp.take_along_axis(q, a[..., None, None], -2)[..., 0, :]
    return a, row.argmin(-1), row.min(-1, keepdims=True) if game.scope == "step" else row
