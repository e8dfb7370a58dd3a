"""MuJoCo's side of an environment: its bodies, its exact state, and no silent reset after a blow-up."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco as untyped
import numpy as np

from rhucrl.errors import SimulationError, UsageError, unknown

mujoco: Any = untyped  # it comes without types

EXACT = mujoco.mjtState.mjSTATE_INTEGRATION
BLOW_UPS = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{name}")) for name in ("QPOS", "QVEL", "QACC")]


def is_mujoco(env: gym.Env) -> bool:
    """Whether the environment is simulated by MuJoCo, with its model and data in the usual places."""
    inner = env.unwrapped
    return isinstance(getattr(inner, "model", None), mujoco.MjModel) and hasattr(inner, "data")


def mujoco_of(env: gym.Env) -> tuple[Any, Any]:
    if not is_mujoco(env):
        raise UsageError(
            "forces and masses need a MuJoCo environment (with .model and .data): choose setting='action', "
            "or give a disturbance of your own"
        )
    inner: Any = env.unwrapped
    return inner.model, inner.data


def names_of(model: Any, kind: str) -> list[str]:
    """The names of all bodies, joints or geoms; some have none."""
    count = {"body": model.nbody, "joint": model.njnt, "geom": model.ngeom}[kind]
    return [mujoco.mj_id2name(model, _object(kind), i) or "" for i in range(count)]


def number_of(model: Any, kind: str, name: str) -> int:
    """The number of a body, a joint or a geom."""
    if (number := mujoco.mj_name2id(model, _object(kind), name)) < 0:
        raise unknown(kind, name, filter(None, names_of(model, kind)))
    return number


def _object(kind: str) -> Any:
    return getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")


def body_names(model: Any) -> list[str]:
    """All bodies but the world."""
    return names_of(model, "body")[1:]


def body_of(model: Any, name: str) -> int:
    return number_of(model, "body", name)


def joint_of(model: Any, name: str) -> int:
    return number_of(model, "joint", name)


def demand_sanity(data: Any) -> None:
    """MuJoCo answers a blow-up with a silent reset: here it is an error."""
    if data.warning.number[BLOW_UPS].any():
        raise SimulationError(
            "the simulation blew up (its positions, velocities or accelerations became huge or undefined): "
            "use a weaker adversary, or masses that are less extreme"
        )


def exact_state(env: gym.Env) -> np.ndarray:
    """All that the next steps depend on."""
    model, data = mujoco_of(env)
    state = np.empty(mujoco.mj_stateSize(model, EXACT))
    mujoco.mj_getState(model, data, state, EXACT)
    return state


def restore(env: gym.Env, state: np.ndarray) -> None:
    """Put the simulation into an exact state."""
    model, data = mujoco_of(env)
    mujoco.mj_resetData(model, data)
    mujoco.mj_setState(model, data, state, EXACT)
    mujoco.mj_forward(model, data)  # for those who look before they step


def quiet() -> None:
    """Blow-ups are raised as errors; MuJoCo would also write a log into the current folder."""
    mujoco.set_mju_user_warning(lambda text: None)
