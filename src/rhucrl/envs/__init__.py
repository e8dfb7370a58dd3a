"""The games, and `make`, which names them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

from rhucrl.errors import UsageError, unknown

if TYPE_CHECKING:
    from rhucrl.envs.face import ZeroSumEnv

Setting = Literal["none", "adversarial", "action", "parameter"]
Mixture = Literal["noisy", "probabilistic"]
Scope = Literal["step", "episode"]
Reward = Literal["dense", "sparse"]

NAMES = ("pendulum",)
STRENGTH: dict[str, float] = {"none": 0.0, "adversarial": 0.2, "action": 0.2, "parameter": 0.8}
ACTION_COST: dict[str, float] = {"dense": 0.001, "sparse": 0.05}

__all__ = ["ACTION_COST", "NAMES", "STRENGTH", "Mixture", "Reward", "Scope", "Setting", "make"]


def make(
    name: str = "pendulum",
    setting: Setting = "none",
    strength: float | None = None,
    scope: Scope | None = None,
    mixture: Mixture | None = None,
    reward: Reward = "dense",
    action_cost: float | None = None,
    horizon: int = 200,
) -> ZeroSumEnv:
    """The named environment in one of the paper's settings; `.game` is the game itself.

    Where a value is None the setting chooses it: strength 0.2 (parameter 0.8, none 0), scope `step` (parameter:
    `episode`), mixture `noisy` (setting action only), action cost 0.001 (sparse reward 0.05).
    """
    _member("environment", name, NAMES)
    _member("setting", setting, get_args(Setting))
    _member("reward", reward, get_args(Reward))
    _member("scope", scope or "step", get_args(Scope))
    _member("mixture", mixture or "noisy", get_args(Mixture))
    if mixture is not None and setting != "action":
        raise UsageError(
            f"setting {setting!r} has no mixture: leave mixture={mixture!r} out, or choose setting='action'"
        )
    strength = STRENGTH[setting] if strength is None else _strength(setting, strength)
    action_cost = ACTION_COST[reward] if action_cost is None else action_cost
    if not 0 <= action_cost < math.inf:
        raise UsageError(f"action_cost {action_cost} is negative or not finite: the nearest valid value is 0")
    if horizon != int(horizon) or horizon < 1:
        raise UsageError(f"horizon {horizon} is no number of steps: choose a whole number, at least 1")

    import jax.numpy as jnp  # here, because JAX and Gymnasium take their time to import

    from rhucrl.envs.face import ZeroSumEnv
    from rhucrl.envs.pendulum import Pendulum

    return ZeroSumEnv(
        Pendulum(
            strength=jnp.float32(strength),
            scope=scope or ("episode" if setting == "parameter" else "step"),
            horizon=int(horizon),
            kind=(mixture or "noisy") if setting == "action" else setting,
            rewards=reward,
            action_cost=float(action_cost),
        )
    )


def _member(kind: str, given: Any, known: tuple[str, ...]) -> None:
    if given not in known:
        raise unknown(kind, str(given), known)


def _strength(setting: str, strength: float) -> float:
    if not 0 <= strength < 1:
        nearest = 0.99 if strength >= 1 else 0
        raise UsageError(f"strength {strength} is outside [0, 1): the nearest valid value is {nearest}")
    if setting == "none" and strength != 0:
        raise UsageError(
            f"setting 'none' has no adversary: leave strength={strength} out, or choose setting='adversarial'"
        )
    return strength
