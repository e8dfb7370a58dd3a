"""What learns: it plays episodes, and learns from each of them."""

from __future__ import annotations

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.envs.zero_sum_env import ZeroSumEnv

State = TypeVar("State")


class AbstractLearner(eqx.Module, Generic[State]):
    """An algorithm and its options. Its `State` is a value: everything that a run needs to go on, bit for bit."""

    config: eqx.AbstractVar[TrainConfig]

    @abc.abstractmethod
    def initial(self, env: ZeroSumEnv) -> State:
        """The state before the first episode."""

    @abc.abstractmethod
    def fresh(self, game: Game, capacity: int, key: PRNGKeyArray) -> State:
        """The same with room for `capacity` steps; of its shape are all checkpoints of such a run."""

    def policies(self, state: State) -> dict[str, tuple[Any, Array]]:
        """The players that a run gives back, by their folder: `policy` is the output. Each with its episode."""
        its: Any = state
        return {"policy": (its.output, its.output_episode)}

    @abc.abstractmethod
    def episode(self, env: ZeroSumEnv, state: State, index: int) -> tuple[State, dict[str, Any]]:
        """Episode `index`: from the state before it to the state after it, and what there is to say about it."""
