"""What an adversary may do to an environment besides mixing into its action.

A disturbance is anything with a box of values at full strength, the value that changes nothing, and `apply`. These
two work on every MuJoCo environment; one of your own is a class of a few lines (docs/environments.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rhucrl.envs.physics import body_of, mujoco, mujoco_of
from rhucrl.errors import UsageError

AXES = "xyz"


class Disturbance(Protocol):
    """`apply` is called before every step and, with the neutral value, before every reset but the first."""

    box: tuple[Any, Any]
    """The lowest and the highest value at strength 1; the strength scales both about the neutral one."""
    neutral: Any

    def apply(self, env: gym.Env, value: np.ndarray) -> None: ...


class Forces:
    """Forces in newtons on bodies' centres of mass, in the world's frame, held for one step of the environment.

    `Forces("torso=xz, foot=x")` names the axes of each body, `Forces(("torso", "foot"), "xz")` those of all. The value
    holds the axes of the first body, then those of the second. The strength is the largest force.
    """

    def __init__(self, bodies: str | Sequence[str], axes: str = AXES):
        bodies = bodies.split(",") if isinstance(bodies, str) else bodies
        named = [(body.strip(), its.strip() if own else axes) for body, own, its in (b.partition("=") for b in bodies)]
        pushes = [(body, axis) for body, its in named for axis in its]
        if not pushes or len(set(pushes)) < len(pushes) or set("".join(its for _, its in named)) - set(AXES):
            raise UsageError(
                f"forces need bodies and some of the axes {AXES!r}, each once, such as torso=xz, foot=x; "
                f"got {', '.join(bodies)!r} and {axes!r}"
            )
        self.text = ",".join(f"{body}={its}" for body, its in named)
        self.bodies, self._pushes = tuple(body for body, _ in named), pushes
        size = len(pushes)
        self.box, self.neutral = (-np.ones(size), np.ones(size)), np.zeros(size)
        self.strength = 10.0  # by default
        self._model: Any = None

    def apply(self, env: gym.Env, value: np.ndarray) -> None:
        model, data = mujoco_of(env)
        if model is not self._model:
            self._model, self._rows = model, [body_of(model, body) for body, _ in self._pushes]
            self._axes = [AXES.index(axis) for _, axis in self._pushes]
        data.xfrc_applied[:] = 0  # forces stay until they are overwritten
        data.xfrc_applied[self._rows, self._axes] = value


class Masses:
    """Relative masses of bodies, their inertia unchanged. The box is the range at strength 1."""

    def __init__(self, bodies: str | Sequence[str], low: float = 0.5, high: float = 1.5):
        self.bodies = (bodies,) if isinstance(bodies, str) else tuple(bodies)
        if not self.bodies or not 0 < low <= 1 <= high:
            raise UsageError(f"masses need bodies and 0 < low <= 1 <= high, got {self.bodies}, {low} and {high}")
        self.names = ["mass"] if len(self.bodies) == 1 else [f"{body}_mass" for body in self.bodies]
        size = len(self.bodies)
        self.box, self.neutral = (np.full(size, low), np.full(size, high)), np.ones(size)
        self._model: Any = None

    def apply(self, env: gym.Env, value: np.ndarray) -> None:
        model, _ = mujoco_of(env)
        if model is not self._model:
            self._model, self._rows = model, np.array([body_of(model, name) for name in self.bodies])
            self._nominal, self._scratch = model.body_mass[self._rows].copy(), mujoco.MjData(model)
            self._current = self.neutral
        if not np.array_equal(value, self._current):
            model.body_mass[self._rows] = self._nominal * value
            mujoco.mj_setConst(model, self._scratch)  # what contacts depend on; on the live data it would move qpos
            self._current = np.array(value)
