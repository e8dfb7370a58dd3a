"""The algorithms of the paper as rows of one table.

All of them are the same two problems over one update: the agent's (who may have an opponent, and whose eta
may be optimistic or absent), and the response to the agent, whose eta is pessimistic or absent. They differ
in these entries, and in which adversary plays the real episodes. Algorithms without a model are rows of a second
table: who plays against the agent, and how both learn.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple


class Algorithm(NamedTuple):
    """A row: signs of eta (+1 maximises, -1 minimises, 0 is absent), the opponent, the deployed adversary."""

    agent_eta: Literal[1, 0]
    opponent: bool
    response_eta: Literal[-1, 0]
    deployed: Literal["response", "own", "none"]
    summary: str


ALGORITHMS: dict[str, Algorithm] = {
    "rh-ucrl": Algorithm(1, True, -1, "response", "optimistic agent, pessimistic adversary (eq:rhucrl)"),
    "best-response": Algorithm(1, True, 0, "response", "optimistic agent, greedy adversary (eq:best-response)"),
    "maximin-mb": Algorithm(0, True, -1, "own", "expected performance for both players (eq:minimax)"),
    "h-ucrl": Algorithm(1, False, -1, "none", "optimistic agent without an adversary (Curi et al. 2020)"),
    "greedy": Algorithm(0, False, -1, "none", "expected performance without an adversary: no exploration"),
}


class ModelFree(NamedTuple):
    """A row: how the players learn, who the agent's adversaries are, and the settings that it is made for."""

    learner: Literal["off-policy", "on-policy"]
    adversaries: Literal["none", "one", "population", "sampled"]
    settings: tuple[str, ...]
    summary: str
    deterministic: bool = False
    worst_only: bool = False

    @property
    def opponent(self) -> bool:
        return self.adversaries != "none"

    @property
    def deployed(self) -> Literal["own", "none"]:
        return "own" if self.adversaries in ("one", "population") else "none"


ANY = ("none", "adversarial", "action", "parameter")
FORCES = ("adversarial", "action")

MODEL_FREE: dict[str, ModelFree] = {
    "maximin-mf": ModelFree(
        "off-policy", "one", ("adversarial", "action", "parameter"),
        "soft actor-critic for both players, one zero-sum critic",
    ),
    "ar-ddpg": ModelFree(
        "off-policy", "one", ("action",), "deterministic policies, a critic of the mixed action (Tessler et al. 2019)",
        deterministic=True,
    ),
    "rarl": ModelFree("on-policy", "one", FORCES, "PPO for agent and adversary (Pinto et al. 2017)"),
    "rap": ModelFree("on-policy", "population", FORCES, "PPO, a population of adversaries (Vinitsky et al. 2020)"),
    "ep-opt": ModelFree(
        "on-policy", "sampled", ("parameter",), "PPO on the worst fifth of random parameters (Rajeswaran et al. 2017)",
        worst_only=True,
    ),
    "domain-randomization": ModelFree("on-policy", "sampled", ("parameter",), "PPO on random parameters"),
    "sac": ModelFree("off-policy", "none", ANY, "soft actor-critic without an adversary (Haarnoja et al. 2018)"),
    "ppo": ModelFree("on-policy", "none", ANY, "PPO without an adversary (Schulman et al. 2017)"),
}  # fmt: skip

EVERY: Mapping[str, Algorithm | ModelFree] = ChainMap[str, Any](MODEL_FREE, ALGORITHMS)  # also of rows to come
