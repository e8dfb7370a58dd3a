"""The numbers that environments and algorithms begin with, where they differ from the options' own defaults."""

from __future__ import annotations

from typing import Any, Literal

from rhucrl.algorithms import MODEL_FREE

Preset = Literal["standard", "paper"]

ROBOT = {
    "solver": "actor-critic", "episodes": 50, "random_episodes": 5, "heads": 5, "model_width": 160, "model_layers": 3,
    "layer_norm": True, "linear": True, "noise": "beside", "model_learning_rate": 1e-3, "model_decay": 0.3,
    "model_rounds": 15, "model_average_rate": 0.01, "round": 100,
}  # fmt: skip
# fmt: off
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "pendulum": {"solver": "look-ahead"},
    "half-cheetah": ROBOT | {"episodes": 60},
    "inverted-pendulum": ROBOT | {"episodes": 30, "random_episodes": 1},
    "hopper": ROBOT | {"episodes": 60, "worst_after": 40},
    "swimmer": ROBOT | {"episodes": 100, "discount": 0.9995},
    "walker": ROBOT | {"episodes": 80, "worst_after": 40},
    "reacher": ROBOT | {  # episodes are short
        "episodes": 100, "random_episodes": 10, "updates": 4.0, "model_rounds": 3, "round": 50,
    },
}
# fmt: on
PAPER = {
    "solver": "actor-critic",
    "episodes": 200,
    "output_rule": "paper",
    "beta": 1.0,
    "discount": 0.99,
    "model_steps": 3,
    "trace": 0.1,
    "start_steps": 1,
    "beginnings": 0.0,
    "updates": 2.0,
    "held": 0,
    "nobody": False,
    "critics": 2,
    "critics_first": 0.0,
    "temperature": 0.2,
    "target_rate": 0.005,
    "average_rate": 1.0,
    "model_width": 200,
    "model_epochs": 20,
    "minimum_temperature": 0.0,
}  # fmt: skip
"""What the paper states (`sec:extra_experiments`), and nothing that it does not have; widths are Chua et al.'s."""
EPISODES = {"off-policy": 200, "on-policy": 1000}


def numbers_of(env: str, algo: str, preset: Preset = "standard") -> dict[str, Any]:
    """By the options' names on the command line; an environment of one's own has the robots' numbers."""
    if algo in MODEL_FREE:
        row = MODEL_FREE[algo]
        return {"episodes": EPISODES[row.learner]} | ({"rollouts": 10} if row.worst_only else {})
    return PAPER if preset == "paper" else ENVIRONMENTS.get(env, ROBOT | {"random_episodes": 2})
