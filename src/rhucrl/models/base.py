"""What a dynamics model says about the next state."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from jaxtyping import Array, Float

from rhucrl.envs.game import Game


class Prediction(NamedTuple):
    """Mean, epistemic and aleatoric standard deviation of the next observation."""

    mean: Float[Array, "*b p"]
    epistemic: Float[Array, "*b p"]
    aleatoric: Float[Array, "*b p"]


class Model(Protocol):
    """Any dynamics model: the prediction at (s, executed action, adversary's action)."""

    @property
    def game(self) -> Game: ...

    @property
    def members(self) -> int:
        """How many plausible models there are to draw from."""
        ...

    def predict(self, obs: Array, executed: Array, adversary: Array) -> Prediction: ...

    def member(self, obs: Array, executed: Array, adversary: Array, index: Array) -> tuple[Array, Array]:
        """Mean and aleatoric standard deviation of one plausible model, for J^(e)."""
        ...
