"""Robust model-based reinforcement learning: RH-UCRL and all that the paper compares it with."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # `typing` takes longer to import than all else here
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# Names are imported when they are first used: `import rhucrl` and `rhucrl --help` stay quick.
_HOME = {
    "rhucrl.training.agent": (
        "Agent", "RHUCRL", "HUCRL", "BestResponse", "MaxiMinMB", "Greedy", "MaxiMinMF", "ARDDPG", "RARL", "RAP",
        "EPOpt", "DomainRandomization", "SAC", "PPO", "load",
    ),
    "rhucrl.config": ("TrainConfig",),
    "rhucrl.envs": ("make",),
    "rhucrl.envs.check_env": ("check_env",),
    "rhucrl.envs.disturbances": ("Forces", "Masses"),
    "rhucrl.envs.zero_sum_env": ("AdversaryView", "AgentView", "ZeroSumEnv"),
    "rhucrl.envs.wrap": ("wrap",),
    "rhucrl.envs.pettingzoo": ("ParallelView",),
    "rhucrl.errors": ("UsageError", "DiskError", "SimulationError"),
    "rhucrl.attacks.worst_case": ("worst_case", "sweep", "sweep_parameter", "load_adversary"),
    "rhucrl.attacks.oracle": ("solve", "best_response"),
    "rhucrl.attacks.reference": ("lqr", "cascade"),
    "rhucrl.experiments.video": ("record",),
    "rhucrl.solvers.planner.controller": ("Planner",),
}  # fmt: skip
_PLACES = {name: home for home, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'rhucrl' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
