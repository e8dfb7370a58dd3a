"""What a solver is: how it solves both problems of an episode in the model, and the two players that come of it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float, Key, PRNGKeyArray

from rhucrl.algorithms import EVERY
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.models.base import AbstractModel
from rhucrl.networks.layers import Perceptron
from rhucrl.networks.policies import AbstractAdversary, AbstractPolicy, Answer, Gaussian, Nobody, Normaliser
from rhucrl.replay import Replay

State = TypeVar("State")
Value = Callable[[Float[Array, "*b p"]], Float[Array, "*b"]]


@runtime_checkable
class Players(Protocol):
    """The agent's policy pi_t, the adversary's response to it, and the adversary of the agent's own problem."""

    @property
    def policy(self) -> AbstractPolicy: ...

    @property
    def response(self) -> AbstractAdversary: ...

    @property
    def own(self) -> AbstractAdversary: ...


class Pair(NamedTuple):
    """The agent's policy and one adversary, which stands for both."""

    policy: AbstractPolicy
    response: AbstractAdversary

    @property
    def own(self) -> AbstractAdversary:
        return self.response


def gaussian_pair(game: Game, normaliser: Normaliser, agent: Perceptron, adversaries: list[Perceptron]) -> Pair:
    """The networks as players: the agent, and the first of the adversaries or nobody."""
    answers = [Answer(Gaussian(net, normaliser, game.adversary)) for net in adversaries[:1]]
    return Pair(Gaussian(agent, normaliser, game.agent), *(answers or [Nobody(game.neutral)]))


def deployed(algo: str, pair: Players, game: Game) -> AbstractAdversary:
    """The adversary pibar_t that plays the real episodes: the response, that of the agent's own problem, or nobody."""
    choice = EVERY[algo].deployed
    if choice == "none":
        return Nobody(game.neutral)
    return pair.response if choice == "response" else pair.own


def training_env(config: TrainConfig, env: ZeroSumEnv) -> ZeroSumEnv:
    """An algorithm without an opponent learns on the nominal system."""
    return env if EVERY[config.algo].opponent else env.at(0.0)


class SolverNumbers(NamedTuple):
    """The solver's hyper-parameters; all are traced, so one program serves them all."""

    beta: Array
    discount: Array
    trace: Array
    learning_rate: Array
    target_rate: Array
    average_rate: Array
    entropy: Array


class AbstractSolver(eqx.Module, Generic[State]):
    """Solves the agent's problem and the adversary's in the current model; its `State` is what it learns."""

    config: eqx.AbstractVar[TrainConfig]
    game: eqx.AbstractVar[Game]

    @abc.abstractmethod
    def begin(self, keys: Key[Array, " k"]) -> State:
        """The state before the first episode."""

    @abc.abstractmethod
    def players(self, model: AbstractModel, state: State, numbers: SolverNumbers) -> Players:
        """Those that the state stands for."""

    @abc.abstractmethod
    def improve(
        self, model: AbstractModel, replay: Replay, state: State, numbers: SolverNumbers, keys: Key[Array, " k"]
    ) -> tuple[State, dict[str, Array]]:
        """Solve both problems in the model (`eq:rhucrl`), and say how it went."""

    @abc.abstractmethod
    def judge(
        self, model: AbstractModel, replay: Replay, state: State, output: Any, numbers: SolverNumbers,
        key: PRNGKeyArray,
    ) -> dict[str, Array]:  # fmt: skip
        """J^(o), J^(e), J^(p) of the players in the model, and J^(p) of the `output` policy."""

    @abc.abstractmethod
    def value(self, model: AbstractModel, replay: Replay, state: State, numbers: SolverNumbers) -> Value:
        """The critic of the agent's problem."""
