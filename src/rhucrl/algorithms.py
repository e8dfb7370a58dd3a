"""The algorithms of the paper as rows of one table.

All of them are the same two problems over one update: the agent's (who may have an opponent, and whose eta
may be optimistic or absent), and the response to the agent, whose eta is pessimistic or absent. They differ
in these entries, and in which adversary plays the real episodes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


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
