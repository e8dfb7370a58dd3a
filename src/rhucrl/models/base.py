"""What a dynamics model is: what it says about the next state, and how it learns from an episode."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.replay import Replay


class Prediction(NamedTuple):
    """Mean, epistemic and aleatoric standard deviation of the next observation."""

    mean: Float[Array, "*b p"]
    epistemic: Float[Array, "*b p"]
    aleatoric: Float[Array, "*b p"]


class AbstractModel(eqx.Module):
    """A dynamics model: what it predicts at (s, executed action, adversary's action), and how it learns."""

    game: eqx.AbstractVar[Game]
    temperature: eqx.AbstractVar[Float[Array, ""]]
    """The factor by which recalibration has stretched the uncertainty."""

    @property
    @abc.abstractmethod
    def members(self) -> int:
        """How many plausible models there are to draw from."""

    @abc.abstractmethod
    def predict(self, obs: Array, executed: Array, adversary: Array) -> Prediction: ...

    @abc.abstractmethod
    def member(self, obs: Array, executed: Array, adversary: Array, index: Array) -> tuple[Array, Array]:
        """Mean and aleatoric standard deviation of one plausible model, for J^(e)."""

    @abc.abstractmethod
    def divided(self, obs: Array, executed: Array, adversary: Array, shift: Array) -> tuple[Array, Array]:
        """The same where the last axis of a batch is divided into as many parts as there are members.

        Part i goes through member i - `shift`, which costs no more than one member for all parts.
        """

    @abc.abstractmethod
    def update(self, config: TrainConfig, memory: Any, replay: Replay, key: Array) -> tuple[AbstractModel, Any, dict]:
        """The model of all data, of which one episode's are new; what its next update needs; how it went."""
