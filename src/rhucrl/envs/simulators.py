"""Gymnasium environments as simulators: one step at a time, and states that can be saved."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rhucrl.envs.physics import demand_sanity, exact_state, is_mujoco, mujoco, mujoco_of, restore
from rhucrl.envs.robots import turned
from rhucrl.errors import UsageError

State = dict[str, Any]


class Seen(NamedTuple):
    """What a step of an environment shows."""

    obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


class Simulator:
    """An environment, its last observation, and its exact state where it can be had."""

    def __init__(self, env: gym.Env):
        self.env, self.obs = env, np.zeros(0)
        self.dtype = env.observation_space.dtype
        self.data = mujoco_of(env)[1] if is_mujoco(env) else None

    def reset(self, seed: int | None) -> np.ndarray:
        self.obs, _ = self.env.reset(seed=seed)
        return self.obs.copy()

    def step(self, action: np.ndarray) -> Seen:
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        if self.data is not None:
            demand_sanity(self.data)
        return Seen(self.obs.copy(), float(reward), bool(terminated), bool(truncated))

    def get_state(self) -> State:
        physics = _own(self.env, "get_state")() if self.data is None else exact_state(self.env)
        elapsed = getattr(time_limit(self.env), "_elapsed_steps", None)
        generator = self.env.unwrapped.np_random.bit_generator.state
        return {"physics": physics, "obs": self.obs.copy(), "generator": generator, "elapsed": elapsed}

    def set_state(self, saved: State) -> np.ndarray:
        if self.data is None:
            _own(self.env, "set_state")(saved["physics"])
        else:
            restore(self.env, np.asarray(saved["physics"], float))
        self.obs = np.asarray(saved["obs"], self.dtype)
        self.env.unwrapped.np_random.bit_generator.state = saved["generator"]
        if (limit := time_limit(self.env)) is not None:
            limit._elapsed_steps = saved["elapsed"]
        return self.obs.copy()


class MeanVelocity(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """A MuJoCo environment seen as [mean velocity of the first coordinates over the step, the other ones, qvel].

    The native observations of the locomotion tasks determine neither the reward nor, clipped, the next state.
    At reset the mean velocity is the velocity.
    """

    def __init__(self, env: gym.Env, coordinates: int = 1):
        gym.utils.RecordConstructorArgs.__init__(self, coordinates=coordinates)
        super().__init__(env)
        inner: Any = env.unwrapped
        model, self._data = mujoco_of(env)
        self._hidden, self._dt = coordinates, inner.dt
        edge = np.full(model.nq + model.nv, np.inf)
        self.observation_space = gym.spaces.Box(-edge, edge, dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        _, info = self.env.reset(seed=seed, options=options)
        return self._see(self._data.qvel[: self._hidden]), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        before = self._data.qpos[: self._hidden].copy()
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._see((self._data.qpos[: self._hidden] - before) / self._dt), reward, terminated, truncated, info

    def _see(self, velocity: np.ndarray) -> np.ndarray:
        return np.concatenate((velocity, self._data.qpos[self._hidden :], self._data.qvel))


class OwnDirections(MeanVelocity):
    """A robot that floats in a plane, seen by itself: velocities are those ahead and to the left of its first body.

    Where `MeanVelocity` has the velocity of the first body, this has that of the centre of mass (under the nominal
    masses). Strokes shake the one forty times as much as they move the other, and what a model is wrong by in every
    step, a glide adds up.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env, coordinates=2)
        model, _ = mujoco_of(env)
        self._nominal, self._still = copy.copy(model), mujoco.MjData(model)

    def _see(self, velocity: np.ndarray) -> np.ndarray:
        qpos, qvel = self._data.qpos, self._data.qvel
        return np.concatenate((turned(velocity, -qpos[2]), qpos[2:], turned(self._drift(), -qpos[2]), qvel[2:]))

    def _drift(self) -> np.ndarray:
        """The velocity of the centre of mass."""
        self._still.qpos, self._still.qvel = self._data.qpos, self._data.qvel
        for update in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_comVel, mujoco.mj_subtreeVel):
            update(self._nominal, self._still)
        return self._still.subtree_linvel[0, :2]


def time_limit(env: Any) -> Any:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return env
        env = env.env
    return None


def _own(env: gym.Env, name: str) -> Callable[..., Any]:
    if (method := getattr(env.unwrapped, name, None)) is None:
        raise UsageError(
            "this environment cannot save and restore its state: give it get_state() and set_state(state), "
            "of arrays and plain numbers"
        )
    return method
