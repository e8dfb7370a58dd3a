"""Controllers that nobody has trained, to hold learned policies against: made by hand, or planning.

Those made by hand are of the inverted pendulum. Observations are (x, angle, their velocities); a positive action
pushes the cart towards positive x. Each controller is a policy of one observation or of a batch of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError, unknown

ENVIRONMENT = "inverted-pendulum"
STATE_COST, ACTION_COST = (10.0, 100.0, 0.0, 0.0), 1.0  # of the LQR: x, angle, their velocities
DIFFERENCE = 1e-4  # of the linearisation
FORCE = 3.0  # the largest action


class Linear(NamedTuple):
    """a = -gain obs, within the box."""

    gain: np.ndarray

    def __call__(self, obs: Any) -> np.ndarray:
        return np.clip(-np.asarray(obs) @ self.gain.T, -FORCE, FORCE)


class Cascade(NamedTuple):
    """An outer loop asks for a lean against the cart's drift, at most `lean`; an inner loop holds the pole there."""

    position: float
    velocity: float
    lean: float
    angle: float
    rate: float

    def __call__(self, obs: Any) -> np.ndarray:
        x, angle, v, w = np.moveaxis(np.asarray(obs), -1, 0)
        wanted = np.clip(-self.position * x - self.velocity * v, -self.lean, self.lean)
        return np.clip(self.angle * (angle - wanted) + self.rate * w, -FORCE, FORCE)[..., None]


def linearised(env: ZeroSumEnv, difference: float = DIFFERENCE) -> tuple[np.ndarray, np.ndarray]:
    """A and B of obs' = A obs + B a at rest, upright and without an adversary, by central differences."""
    inner: Any = env.system.simulator.env.unwrapped  # type: ignore[attr-defined]
    positions, states, actions = inner.model.nq, env.observation_space.shape[0], env.boxes["agent"].shape[0]  # type: ignore[index]
    env.reset(seed=0)

    def following(at: np.ndarray) -> np.ndarray:
        inner.set_state(at[:positions], at[positions:states])
        return env.system.step(at[states:], env.neutral).obs

    moves = difference * np.eye(states + actions)
    slopes = np.stack([(following(move) - following(-move)) / (2 * difference) for move in moves], -1)
    return slopes[:, :states], slopes[:, states:]


def riccati(a: np.ndarray, b: np.ndarray, state_cost: np.ndarray, action_cost: np.ndarray) -> np.ndarray:
    """The gain K of the regulator u = -K s that minimises the sum of s'Qs + u'Ru."""
    from scipy.linalg import solve_discrete_are

    cost = solve_discrete_are(a, b, state_cost, action_cost)
    return np.linalg.solve(action_cost + b.T @ cost @ b, b.T @ cost @ a)


def lqr() -> Linear:
    """The linear-quadratic regulator of the linearised simulator."""
    from rhucrl.envs import make

    return Linear(riccati(*linearised(make(ENVIRONMENT)), np.diag(STATE_COST), np.diag([ACTION_COST])))


def cascade() -> Cascade:
    """The cascade that `python benchmarks/tune_cascade.py` found, by attacking what it had found before."""
    return Cascade(position=0.156, velocity=0.282, lean=0.179, angle=19.3, rate=2.79)


REFERENCES: dict[str, Callable[[], Any]] = {"lqr": lqr, "cascade": cascade}


def reference(name: str, env: ZeroSumEnv) -> Any:
    """The named controller, if it was made for this environment."""
    if name == "planner":
        from rhucrl.solvers.planner.controller import Planner

        return Planner(env)  # with the environment's own dynamics
    if name not in REFERENCES:
        raise unknown("reference policy", name, [*REFERENCES, "planner"])
    if getattr(env.game, "name", None) != ENVIRONMENT:
        raise UsageError(f"{name} is a controller of {ENVIRONMENT}: attack it there, or name another policy")
    return REFERENCES[name]()
