"""Bounds that reality contradicts: what a run says about its own J when returns do not fit to it."""

from __future__ import annotations

from typing import Any

from rhucrl.envs.game import Game
from rhucrl.envs.stored import is_own, name_of

PATIENCE = 3  # episodes in a row: a model that is still learning may be wrong now and then
FAR = 0.15  # of the largest of the numbers that are compared
SLACK = 0.01  # of the returns' possible range: smaller differences say nothing


class Doubts:
    """Watches the metrics of a run's episodes, and says each doubt once."""

    def __init__(self, game: Game):
        low, high = (float(x) for x in game.reward_range)
        # An episode may be cut short, which earns nothing: 0 is always a possible return.
        self.least, self.most = min(0.0, low * game.horizon), max(0.0, high * game.horizon)
        self.own = is_own(name_of(game))
        self.outside: dict[str, int] = {}
        self.said: set[str] = set()

    def of(self, metrics: dict[str, Any]) -> str | None:
        """A sentence about this episode that has not been said yet, or None."""
        if "J_pessimistic" not in metrics:
            return None
        for name, sentence in (*self._impossible(metrics), *self._contradicted(metrics)):
            if name not in self.said:
                self.said.add(name)
                return f"episode {metrics['episode']}: {sentence}"
        return None

    def _impossible(self, metrics: dict[str, Any]) -> list[tuple[str, str]]:
        """A J that no sum of possible rewards can give."""
        slack, found = SLACK * (self.most - self.least), []
        for name in ("J_optimistic", "J_expected", "J_pessimistic"):
            value = metrics[name]
            if not self.least - slack <= value <= self.most + slack:
                found.append(("impossible", (
                    f"{name} is {value:.0f}, and returns lie between {self.least:.0f} and {self.most:.0f}: the learned "
                    "reward or the model is wrong where the policy goes; more episodes help, or a known reward= and "
                    "its reward_range="
                )))  # fmt: skip
        return found

    def _contradicted(self, metrics: dict[str, Any]) -> list[tuple[str, str]]:
        """Returns that were far outside [J^(p), J^(o)] several times in a row."""
        low, high, real = (metrics[name] for name in ("J_pessimistic", "J_optimistic", "return"))
        far = max(FAR * max(abs(low), abs(high), abs(real)), SLACK * (self.most - self.least))
        wrong = {"above": real > high + far, "below": real < low - far}
        self.outside = {side: self.outside.get(side, 0) + 1 if wrong[side] else 0 for side in wrong}
        interval = f"the real return {real:.0f} is far outside [J^(p), J^(o)] = [{low:.0f}, {high:.0f}]"
        own = "; or a reward= that pays {} than the environment does (rhucrl.check_env tells)" if self.own else ""
        causes = {
            "above": "a model that cannot follow the system, or a start from which more can be had than from the one "
            "that J is estimated at" + own.format("less"),
            "below": "a model that is too sure of itself: a larger --beta or more episodes help" + own.format("more"),
        }
        return [(side, f"{interval} in {count} episodes in a row; likely: {causes[side]}")
                for side, count in self.outside.items() if count >= PATIENCE]  # fmt: skip
