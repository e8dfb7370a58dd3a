"""What every solver gives: the two players of an episode."""

from __future__ import annotations

from typing import Any, NamedTuple


class Pair(NamedTuple):
    """(pi_t, pibar_t): the agent's policy, and the adversary's answer to state and action."""

    policy: Any
    response: Any
