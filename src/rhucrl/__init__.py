"""Robust model-based reinforcement learning: RH-UCRL and all that the paper compares it with."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # `typing` takes longer to import than all else here
if TYPE_CHECKING:  # for tools: the same names as in _HOME, which a test compares
    from typing import Any

    from rhucrl.attacks.oracle import best_response as best_response
    from rhucrl.attacks.oracle import solve as solve
    from rhucrl.attacks.reference import cascade as cascade
    from rhucrl.attacks.reference import lqr as lqr
    from rhucrl.attacks.worst_case import load_adversary as load_adversary
    from rhucrl.attacks.worst_case import sweep as sweep
    from rhucrl.attacks.worst_case import sweep_parameter as sweep_parameter
    from rhucrl.attacks.worst_case import worst_case as worst_case
    from rhucrl.config import TrainConfig as TrainConfig
    from rhucrl.envs import make as make
    from rhucrl.envs.check_env import check_env as check_env
    from rhucrl.envs.disturbances import Forces as Forces
    from rhucrl.envs.disturbances import Masses as Masses
    from rhucrl.envs.parameters import Parameters as Parameters
    from rhucrl.envs.pettingzoo import ParallelView as ParallelView
    from rhucrl.envs.wrap import wrap as wrap
    from rhucrl.envs.zero_sum_env import AdversaryView as AdversaryView
    from rhucrl.envs.zero_sum_env import AgentView as AgentView
    from rhucrl.envs.zero_sum_env import ZeroSumEnv as ZeroSumEnv
    from rhucrl.errors import DiskError as DiskError
    from rhucrl.errors import SimulationError as SimulationError
    from rhucrl.errors import UsageError as UsageError
    from rhucrl.experiments.video import record as record
    from rhucrl.options import ActorCritic as ActorCritic
    from rhucrl.options import Ensemble as Ensemble
    from rhucrl.options import GaussianProcess as GaussianProcess
    from rhucrl.options import Known as Known
    from rhucrl.options import LookAhead as LookAhead
    from rhucrl.options import OffPolicy as OffPolicy
    from rhucrl.options import OnPolicy as OnPolicy
    from rhucrl.options import RecedingHorizon as RecedingHorizon
    from rhucrl.solvers.planner.controller import Planner as Planner
    from rhucrl.training.agent import ARDDPG as ARDDPG
    from rhucrl.training.agent import HUCRL as HUCRL
    from rhucrl.training.agent import PPO as PPO
    from rhucrl.training.agent import RAP as RAP
    from rhucrl.training.agent import RARL as RARL
    from rhucrl.training.agent import RHUCRL as RHUCRL
    from rhucrl.training.agent import SAC as SAC
    from rhucrl.training.agent import Agent as Agent
    from rhucrl.training.agent import BestResponse as BestResponse
    from rhucrl.training.agent import DomainRandomization as DomainRandomization
    from rhucrl.training.agent import EPOpt as EPOpt
    from rhucrl.training.agent import Greedy as Greedy
    from rhucrl.training.agent import MaxiMinMB as MaxiMinMB
    from rhucrl.training.agent import MaxiMinMF as MaxiMinMF
    from rhucrl.training.agent import load as load

__version__ = "0.1.0"

# Names are imported when they are first used: `import rhucrl` and `rhucrl --help` stay quick.
_HOME = {
    "rhucrl.training.agent": (
        "Agent", "RHUCRL", "HUCRL", "BestResponse", "MaxiMinMB", "Greedy", "MaxiMinMF", "ARDDPG", "RARL", "RAP",
        "EPOpt", "DomainRandomization", "SAC", "PPO", "load",
    ),
    "rhucrl.config": ("TrainConfig",),
    "rhucrl.options": (
        "ActorCritic", "Ensemble", "GaussianProcess", "Known", "LookAhead", "OffPolicy", "OnPolicy", "RecedingHorizon",
    ),
    "rhucrl.envs": ("make",),
    "rhucrl.envs.check_env": ("check_env",),
    "rhucrl.envs.disturbances": ("Forces", "Masses"),
    "rhucrl.envs.parameters": ("Parameters",),
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
