"""The adversary that knows everything: it tries its actions in the true simulator before it acts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rhucrl.attacks import families as adversaries
from rhucrl.envs.game import Game
from rhucrl.storage.trees import load_tree, read_meta, save_tree

CANDIDATES = 9  # actions tried at most


@dataclass(frozen=True, eq=False)
class PlanningAdversary(adversaries.AbstractFound):
    """Every `hold` steps: the action that, held for `depth` steps of the true system, leaves the policy the least.

    With a depth of one step it is greedy. Among equal returns counts how far the system was driven.
    """

    depth: int
    hold: int
    actions: np.ndarray

    def bind(self, env: Any, act: Any) -> Any:
        scale, chosen = np.asarray(env.game.scale), self.actions[0]

        def outcome(saved: Any, memory: Any, obs: np.ndarray, action: np.ndarray) -> tuple[float, float]:
            env.set_state(saved)
            act.memory = memory
            begun, total, done, steps = obs, 0.0, False, 0
            while not done and steps < self.depth:
                obs, reward, terminated, truncated, _ = env.step({"agent": act(obs), "adversary": action})
                total, done, steps = total + reward, terminated or truncated, steps + 1
            return total, -float(np.square((obs - begun) / scale).sum())

        def plan(obs: np.ndarray, time: Any) -> np.ndarray:
            nonlocal chosen
            if int(time) % self.hold == 0:
                saved, memory = env.get_state(), act.memory
                scores = [outcome(saved, memory, obs, action) for action in self.actions]
                env.set_state(saved)
                act.memory = memory
                chosen = self.actions[min(range(len(scores)), key=scores.__getitem__)]
            return chosen

        return plan

    def described(self) -> dict[str, Any]:
        return {"depth": self.depth, "hold": self.hold, "actions": self.actions.tolist()}

    def save(self, folder: str | Path) -> None:
        meta = {"adversary": "planner", "depth": self.depth, "hold": self.hold, "shape": self.actions.shape}
        save_tree(folder, {"actions": self.actions}, meta)


def load_planner(folder: str | Path) -> PlanningAdversary:
    meta = read_meta(folder)
    arrays, _ = load_tree(folder, {"actions": np.zeros(meta["shape"])})
    return PlanningAdversary(meta["depth"], meta["hold"], arrays["actions"])


def planner(game: Game, depth: int, generator: np.random.Generator) -> PlanningAdversary:
    """A planner over some extremes of the adversary's box, which thinks anew when a quarter of its plan is over."""
    units = adversaries.extremes(game.adversary.size, CANDIDATES, generator)
    return PlanningAdversary(depth, max(1, depth // 4), game.adversary.on_host(float).place(units))
