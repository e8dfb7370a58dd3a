"""The known model: the game's own dynamics, without any uncertainty."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.replay import Replay


class KnownModel(AbstractModel):
    """For testing a solver alone: sigma = 0 everywhere."""

    game: Game
    temperature: Float[Array, ""] = eqx.field(converter=jnp.float32, default=1.0)

    @property
    def members(self) -> int:
        return 1

    def predict(self, obs: Array, executed: Array, adversary: Array) -> Prediction:
        mean = self.game.dynamics(obs, executed, adversary)
        return Prediction(mean, jnp.zeros_like(mean), jnp.zeros_like(mean))

    def member(self, obs: Array, executed: Array, adversary: Array, index: Array) -> tuple[Array, Array]:
        mean = self.game.dynamics(obs, executed, adversary)
        return mean, jnp.zeros_like(mean)

    def divided(self, obs: Array, executed: Array, adversary: Array, shift: Array) -> tuple[Array, Array]:
        return self.member(obs, executed, adversary, shift)

    def update(self, config: TrainConfig, memory: Any, replay: Replay, key: Array) -> tuple[KnownModel, Any, dict]:
        return self, memory, {}


def create(config: TrainConfig, game: Game, key: Array) -> tuple[KnownModel, tuple[()]]:
    return KnownModel(game), ()
