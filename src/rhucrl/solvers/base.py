"""What every solver gives: the two players of an episode."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from rhucrl.algorithms import EVERY
from rhucrl.envs.game import Game
from rhucrl.networks.policies import Nobody


class Players(Protocol):
    """The agent's policy pi_t, the adversary's response to it, and the adversary of the agent's own problem."""

    @property
    def policy(self) -> Any: ...

    @property
    def response(self) -> Any: ...

    @property
    def own(self) -> Any: ...


class Pair(NamedTuple):
    """The agent's policy and one adversary, which stands for both."""

    policy: Any
    response: Any

    @property
    def own(self) -> Any:
        return self.response


def deployed(algo: str, pair: Players, game: Game) -> Any:
    """The adversary pibar_t that plays the real episodes: the response, that of the agent's own problem, or nobody."""
    choice = EVERY[algo].deployed
    if choice == "none":
        return Nobody(game.neutral)
    return pair.response if choice == "response" else pair.own
