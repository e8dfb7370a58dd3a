"""The numbers that environments and algorithms begin with, where they differ from the options' own defaults."""

from __future__ import annotations

from typing import Any, Literal

from rhucrl.algorithms import MODEL_FREE

Speed = Literal["fast", "full"]

ROBOT = {
    "solver": "actor-critic", "episodes": 50, "model_width": 128, "model_rounds": 20, "round": 100, "model_batch": 64,
    "linear": True,
}  # fmt: skip
LEGGED = ROBOT | {
    "episodes": 60, "discount": 0.998, "model_steps": 4, "trace": 0.9, "updates": 1.0, "batch": 32, "width": 96,
    "learning_rate": 5e-4, "slowing": 0.1, "entropy": -0.33, "model_width": 96, "model_rounds": 10,
}  # fmt: skip
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "pendulum": {"solver": "look-ahead"},
    "half-cheetah": ROBOT,
    "inverted-pendulum": ROBOT | {
        "episodes": 30, "beta": 1.0, "model_steps": 20, "broad": 0.5, "trace": 0.9, "updates": 0.3, "batch": 120,
        "width": 64, "learning_rate": 1e-3, "model_width": 32,
    },
    "hopper": LEGGED,
    "swimmer": ROBOT | {"beta": 1.0, "innovations": "recorded"},
    "walker": LEGGED | {"discount": 0.995},
    "reacher": ROBOT | {
        "episodes": 100, "beta": 1.0, "model_steps": 5, "trace": 0.9, "updates": 6.0, "batch": 64,
        "learning_rate": 1e-3, "model_rounds": 10, "round": 50,
    },
}  # fmt: skip
FULL = {"updates": 2.0, "batch": 100, "width": 200, "model_width": 200}  # two updates per step, as in the paper
EPISODES = {"off-policy": 200, "on-policy": 1000}


def preset(env: str, algo: str, speed: Speed = "fast") -> dict[str, Any]:
    """By the options' names on the command line; an environment of one's own has the robots' numbers."""
    if algo in MODEL_FREE:
        row = MODEL_FREE[algo]
        return {"episodes": EPISODES[row.learner]} | ({"rollouts": 10} if row.worst_only else {})
    return ENVIRONMENTS.get(env, ROBOT) | (FULL if speed == "full" else {})
