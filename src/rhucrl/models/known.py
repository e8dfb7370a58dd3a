"""The known model: the game's own dynamics, without any uncertainty."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from rhucrl.envs.game import Game
from rhucrl.models.base import Prediction


class KnownModel(eqx.Module):
    """For testing a solver alone: sigma = 0 everywhere."""

    game: Game

    @property
    def members(self) -> int:
        return 1

    def predict(self, obs: Array, executed: Array, adversary: Array) -> Prediction:
        mean = self.game.dynamics(obs, executed, adversary)
        return Prediction(mean, jnp.zeros_like(mean), jnp.zeros_like(mean))

    def member(self, obs: Array, executed: Array, adversary: Array, index: Array) -> tuple[Array, Array]:
        mean = self.game.dynamics(obs, executed, adversary)
        return mean, jnp.zeros_like(mean)
