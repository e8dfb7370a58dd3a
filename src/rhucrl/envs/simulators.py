"""Gymnasium environments as simulators: one step at a time, and states that can be saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rhucrl.envs.physics import demand_sanity, exact_state, is_mujoco, mujoco_of, restore
from rhucrl.envs.robots import Chain, turned
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
        return self._see(self._velocity()), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        before = self._place()
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._see((self._place() - before) / self._dt), reward, terminated, truncated, info

    def _place(self) -> np.ndarray:
        return self._data.qpos[: self._hidden].copy()

    def _velocity(self) -> np.ndarray:
        return self._data.qvel[: self._hidden]

    def _see(self, mean: np.ndarray) -> np.ndarray:
        angles, rates = self._data.qpos[self._hidden :], self._data.qvel[self._hidden :]
        return np.concatenate((mean, angles, self._velocity(), rates))


class OwnDirections(MeanVelocity):
    """A chain of links that floats in a plane, seen by itself: velocities are those ahead and to its left.

    They are those of the chain's centre instead of its first link's. Strokes shake the one a hundredth as much as the
    other; and what a model is wrong by in a step, a glide adds up.
    """

    def __init__(self, env: gym.Env, chain: Chain):
        super().__init__(env, coordinates=2)
        self._chain = chain

    def _place(self) -> np.ndarray:
        return super()._place() + self._chain.centre(self._data.qpos[2:])

    def _velocity(self) -> np.ndarray:
        return super()._velocity() + self._chain.drift(self._data.qpos[2:], self._data.qvel[2:])

    def _see(self, mean: np.ndarray) -> np.ndarray:
        seen, ahead = super()._see(mean), -self._data.qpos[2]
        behind = mean.size + self._data.qpos.size - 2
        seen[:2], seen[behind : behind + 2] = turned(mean, ahead), turned(self._velocity(), ahead)
        return seen


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
