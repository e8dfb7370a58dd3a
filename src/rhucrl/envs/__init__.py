"""The games, and `make`, which names them."""

from __future__ import annotations

import importlib
import math
import os
import sys
from typing import TYPE_CHECKING, Any, Literal, get_args

from rhucrl.envs.robots import ROBOTS
from rhucrl.errors import UsageError, unknown

if TYPE_CHECKING:
    from rhucrl.envs.zero_sum_env import ZeroSumEnv

Setting = Literal["none", "adversarial", "action", "parameter"]
Mixture = Literal["noisy", "probabilistic"]
Scope = Literal["step", "episode"]
Reward = Literal["dense", "sparse"]

ENVIRONMENTS = {
    "pendulum": "swing up a pendulum whose torque is too weak to lift it",
    "half-cheetah": "run; forces on the torso and both feet",
    "hopper": "hop without falling; forces on the torso",
    "inverted-pendulum": "balance a pole on a cart; forces on the pole (above 8.3 N nobody can)",
    "reacher": "reach a target with an arm; its adversary is powerless, so it shows no robustness",
    "swimmer": "swim; forces on the torso",
    "walker": "walk without falling; forces on the torso",
}
NAMES = tuple(ENVIRONMENTS)
STRENGTH: dict[str, dict[str, float]] = {
    "pendulum": {"none": 0.0, "adversarial": 0.2, "action": 0.2, "parameter": 0.8},
    "robot": {"none": 0.0, "adversarial": 10.0, "action": 0.3, "parameter": 1.0},
}
ACTION_COST: dict[str, float] = {"dense": 0.001, "sparse": 0.05}
HORIZON: dict[str, int] = {"pendulum": 200} | {name: row.horizon for name, row in ROBOTS.items()}
MIXED = ("action",)
PLACE = ("setting", "strength", "scope", "mixture", "horizon", "parameters", "forces")
"""Options of `make` that environments of one's own have."""


def make(
    name: str = "pendulum", setting: Setting | None = None, strength: float | None = None, scope: Scope | None = None,
    mixture: Mixture | None = None, reward: Reward = "dense", action_cost: float | None = None,
    horizon: int | None = None, parameters: str | None = None, forces: str | None = None,
) -> ZeroSumEnv:  # fmt: skip
    """The named environment in one of the paper's settings; `.game` is the game itself.

    Where a value is None the environment and the setting choose it. Setting: `none`. Strength: of the pendulum 0.2
    (parameter 0.8), of the robots 10 newtons (action 0.3; parameter 1, the whole range of masses). Scope: `step`
    (parameter: `episode`). Mixture: `noisy` (setting action only). Action cost: 0.001 (sparse reward 0.05), of the
    pendulum only. Horizon: 200 steps of the pendulum, 50 of the reacher, 1000 of the others. Parameters, of a robot in
    the setting `parameter`: which ones the adversary chooses, such as "torso_mass=0.1:3, floor_friction=0.1:3", or the
    name of a set (rrls-2, rrls-3); the relative mass of one body by default. Forces, of a robot in the setting
    `adversarial`: on which bodies and axes, such as "torso=xz, foot=x".

    `module:function` names an environment of your own: what the function returns, wrapped in the setting. If it has
    been wrapped already, only its strength can be another one.
    """
    if ":" in name:
        from rhucrl.envs.wrap import adopt

        return adopt(name, imported(name), setting, strength, scope, mixture, horizon, parameters, forces)
    setting = setting or implied(parameters, forces) or "none"
    if name not in NAMES:
        raise unknown("environment", str(name), NAMES)
    demand_choices(setting, scope, mixture, reward)
    if mixture is not None and setting not in MIXED:
        raise UsageError(
            f"setting {setting!r} has no mixture: leave mixture={mixture!r} out, or choose setting='action'"
        )
    family = "pendulum" if name == "pendulum" else "robot"
    demand_means(setting, parameters, forces)
    if family == "pendulum" and (parameters or forces) is not None:
        raise UsageError("the pendulum's adversary has no choice of means: leave parameters and forces out")
    strength = STRENGTH[family][setting] if strength is None else demand_strength(family, setting, strength)
    horizon = HORIZON[name] if horizon is None else horizon
    if horizon != int(horizon) or horizon < 1:
        raise UsageError(f"horizon {horizon} is no number of steps: choose a whole number, at least 1")
    scope = scope or ("episode" if setting == "parameter" else "step")
    mixture = (mixture or "noisy") if setting in MIXED else None
    if family == "robot":
        if reward != "dense" or action_cost is not None:
            raise UsageError(f"{name} has one reward: leave reward and action_cost out, they are the pendulum's")
        from rhucrl.envs.wrap import make_robot  # here, because JAX and Gymnasium take their time to import

        return make_robot(name, setting, strength, scope, mixture, int(horizon), parameters, forces)
    action_cost = ACTION_COST[reward] if action_cost is None else action_cost
    if not 0 <= action_cost < math.inf:
        raise UsageError(f"action_cost {action_cost} is negative or not finite: the nearest valid value is 0")

    import jax.numpy as jnp

    from rhucrl.envs.pendulum import Pendulum
    from rhucrl.envs.zero_sum_env import ZeroSumEnv

    kind: Any = mixture or setting
    return ZeroSumEnv(Pendulum(jnp.float32(strength), scope, int(horizon), kind, reward, float(action_cost)))


def imported(name: str) -> Any:
    """What the function of `module:function` returns; the module may lie in the current folder."""
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        maker = getattr(importlib.import_module(module), function, None)
    except Exception as error:
        mistake = f"{module!r} cannot be imported ({type(error).__name__}: {error})"
        raise UsageError(f"{mistake}: repair it, or name a module of this folder") from None
    finally:
        sys.path.pop(0)
    if not callable(maker):
        raise UsageError(f"{module!r} has no function {function!r}: name one that returns the environment")
    return maker()


def demand_choices(setting: str, scope: str | None, mixture: str | None, reward: str = "dense") -> None:
    kinds = {"setting": (setting, Setting), "reward": (reward, Reward), "scope": (scope or "step", Scope),
             "mixture": (mixture or "noisy", Mixture)}  # fmt: skip
    for kind, (given, choices) in kinds.items():
        if given not in get_args(choices):
            raise unknown(kind, str(given), get_args(choices))


def implied(parameters: Any, forces: Any) -> Setting | None:
    """The setting in which somebody means to play who names these."""
    return "parameter" if parameters is not None else None if forces is None else "adversarial"


def demand_means(setting: str, parameters: Any, forces: Any) -> None:
    """Parameters belong to one setting, and forces to another."""
    for name, given, its in (("parameters", parameters, "parameter"), ("forces", forces, "adversarial")):
        if given is not None and setting != its:
            raise UsageError(f"setting {setting!r} has no {name}: leave them out, or choose setting={its!r}")


def demand_strength(family: str, setting: str, strength: float) -> float:
    """The strength, if it means something: a share below 1, a part of the range of masses, or newtons."""
    if setting == "none" and strength != 0:
        raise UsageError(
            f"setting 'none' has no adversary: leave strength={strength} out, or choose setting='adversarial'"
        )
    share = family == "pendulum" or setting in MIXED
    if share and not 0 <= strength < 1:
        nearest = 0.99 if strength >= 1 else 0
        raise UsageError(f"strength {strength} is outside [0, 1): the nearest valid value is {nearest}")
    if setting == "parameter" and not 0 <= strength <= 1:
        raise UsageError(f"strength {strength} is outside [0, 1]: the nearest valid value is {float(strength > 1):g}")
    if not 0 <= strength < math.inf:
        raise UsageError(f"strength {strength} is negative or not finite: the nearest valid value is 0")
    return strength
