"""What one problem of `eq:rhucrl` consists of: its networks, and the world that it is solved in.

Both problems have networks of their own for the adversary, for eta and for the critics, as in the paper. The agent's
problem also owns the policy, of which the response's holds a copy that does not learn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.game import Box, Game, unwound
from rhucrl.models.base import AbstractModel
from rhucrl.networks.layers import Perceptron, stacked
from rhucrl.networks.policies import Gaussian, Normaliser
from rhucrl.replay import Replay, statistics

MARGIN = 0.1  # predicted states stay within the range of the data and so much more
UNITS = 8.0  # a critic's output covers the values that are possible: so many units of it

adam: Any = optax.flatten(optax.scale_by_adam())  # one vector: fewer and larger steps, which compile faster


class Role(NamedTuple):
    """What tells one problem from another: who learns, in which model, against whom. Programs depend on it."""

    sign: int
    """Of eta: +1 maximises, -1 minimises, 0 is absent."""
    contested: bool
    """Else nobody plays against the agent."""
    frozen: bool
    """The agent stays as it is, and plays its mode: the adversary responds to it."""


class ProblemNetworks(NamedTuple):
    """What the gradient steps change."""

    agent: Perceptron
    adversary: Perceptron
    eta: Perceptron
    critics: Perceptron
    log_temperature: Float[Array, ""]


class Problem(NamedTuple):
    networks: ProblemNetworks
    targets: Perceptron
    averaged: Perceptron
    """The agent's policy, averaged over the last updates: what acts."""
    optimiser: optax.OptState
    """Adam's moments: they outlast an episode, or every first step of one would be a step of full size."""


def begin(game: Game, width: int, critics: int, key: PRNGKeyArray) -> Problem:
    keys = jax.random.split(key, 4)
    p, q, qbar = game.observation.size + len(game.winding), game.agent.size, game.adversary.size
    agent, adversary = (Perceptron((p, width, width, 2 * n), k) for n, k in ((q, keys[0]), (qbar, keys[1])))
    eta = Perceptron((p + q + qbar, width, width, game.predicted_size), keys[2])
    values = stacked((p + q + qbar + 1, width, width, 1), jax.random.split(keys[3], critics), normalised=True)
    networks = ProblemNetworks(agent, adversary, eta, values, jnp.log(jnp.float32(0.1)))
    return Problem(networks, values, agent, adam.init(networks))


class World(NamedTuple):
    """What a problem is solved in: it does not change during an episode's updates."""

    game: Game
    model: AbstractModel
    normaliser: Normaliser
    limits: Box
    rewards: Float[Array, " two"]
    """The range of the rewards of a step, with 0 inside, that has been seen."""
    discount: Float[Array, ""]
    worst: Float[Array, ""]
    """Weight of the worst lane in what the agent improves, beside the network's."""
    rules: Float[Array, "r qbar f"]
    """Bang-bang feedback that adversaries may play by."""

    @property
    def scale(self) -> Float[Array, ""]:
        """The reward that a critic's output of 1 stands for."""
        return jnp.maximum(self.rewards[1] - self.rewards[0], 1e-6) / (1 - self.discount) / UNITS

    def clip(self, value: Float[Array, "*b"]) -> Float[Array, "*b"]:
        """Values that the rewards allow."""
        low, high = self.rewards / (1 - self.discount)
        return jnp.clip(value, low, high)

    def agent(self, net: Perceptron) -> Gaussian:
        return Gaussian(net, self.normaliser, self.game.agent)

    def adversary(self, net: Perceptron) -> Gaussian:
        return Gaussian(net, self.normaliser, self.game.adversary)

    def inputs(self, obs: Array, action: Array, adversary: Array) -> Float[Array, "*b d"]:
        """(s, a, abar) as critics and eta see them."""
        return jnp.concatenate(
            [self.normaliser(obs), self.game.agent.unit(action), self.game.adversary.unit(adversary)], -1
        )

    def eta(self, net: Perceptron, obs: Array, action: Array, adversary: Array) -> Float[Array, "*b p"]:
        return jnp.tanh(net(self.inputs(obs, action, adversary)))

    def values(
        self, critics: Perceptron, obs: Array, action: Array, adversary: Array, manner: Float[Array, "*#b"]
    ) -> Float[Array, "critics ..."]:
        """Q(s, a, abar) of every critic, in the units of the reward: the adversary goes on as its `manner` says."""
        x = self.inputs(obs, action, adversary)
        x = jnp.concatenate([x, jnp.broadcast_to(manner, x.shape[:-1])[..., None]], -1)
        many = critics.layers[0].weight.shape[0]
        return self.scale * critics(jnp.broadcast_to(x, (many, *x.shape)))[..., 0]


def observed_limits(game: Game, replay: Replay) -> Box:
    """The range of what has been seen and a little more: predictions outside of it are nobody's experience."""
    seen = replay.filled[:, None] > 0
    low = jnp.where(seen, replay.data.following, jnp.inf).min(0)
    high = jnp.where(seen, replay.data.following, -jnp.inf).max(0)
    margin = (MARGIN * (high - low)).at[jnp.array(game.winding, int)].set(jnp.inf)
    return Box(low - margin, high + margin)


@eqx.filter_jit
def observed_rewards(game: Game, replay: Replay) -> Float[Array, " two"]:
    """The range of nearly all rewards of the replay, and 0, which is what every end is worth."""
    rewards = game.reward(*replay.data)
    rewards = jnp.where(replay.filled > 0, rewards, jnp.nan)
    low, high = jnp.nanquantile(rewards, jnp.array([0.01, 0.99]))
    return jnp.stack([jnp.minimum(low, 0.0), jnp.maximum(high, 0.0)])


def observed_units(game: Game, replay: Replay) -> Normaliser:
    """The units in which networks see the state: those of all data."""
    obs = replay.data.obs[:, : game.observation.size]
    return Normaliser(*statistics(unwound(obs, game.winding), replay.filled), game.winding)
