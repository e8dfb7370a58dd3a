"""The real systems that games are played on: pure JAX ones, and any Gymnasium environment.

A system takes both players' actions as they come, holds them in their boxes, executes their mixture and says what
happened. On the host no step touches JAX: the reward and the end are the environment's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from rhucrl.envs.game import Box, Game, JaxGame, demand_jax, mix, play

if TYPE_CHECKING:  # MuJoCo takes its time to import
    from rhucrl.envs.disturbances import Disturbance
    from rhucrl.envs.simulators import Simulator

State = dict[str, Any]


class Outcome(NamedTuple):
    """What one step of a system leaves behind."""

    obs: np.ndarray
    executed: np.ndarray
    reward: float
    terminated: bool
    truncated: bool = False


class System(Protocol):
    """What `ZeroSumEnv` plays on. `generator` belongs to the environment and is seeded by its `reset(seed=...)`."""

    observations: gym.spaces.Box
    actions: gym.spaces.Box

    def under(self, game: Game) -> System:
        """The same system under a game that differs in its strength only."""
        ...

    def reset(self, seed: int | None, generator: np.random.Generator) -> np.ndarray: ...

    def step(self, action: np.ndarray, adversary: np.ndarray) -> Outcome: ...

    def get_state(self) -> State:
        """Arrays and plain numbers that all that follows depends on."""
        ...

    def set_state(self, saved: State) -> np.ndarray:
        """Continue where `get_state` was called; returns the observation there."""
        ...


@eqx.filter_jit
def _reset(game: JaxGame, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    state = game.reset(key)
    return state, game.observe(state)


@eqx.filter_jit
def _step(game: JaxGame, state: Any, action: Any, adversary: Any, key: jax.Array, time: Any) -> tuple:
    played = play(game, state, action, adversary, jax.random.fold_in(key, time))
    obs = game.observe(played.state)
    return played.state, obs, played.executed, played.reward, game.terminated(obs)


def space(box: Box) -> gym.spaces.Box:
    """The Gymnasium space of a box of physical units."""
    return gym.spaces.Box(np.asarray(box.low, np.float32), np.asarray(box.high, np.float32), dtype=np.float32)


class JaxSystem:
    """The system that a `JaxGame` is."""

    def __init__(self, game: JaxGame):
        self.game, self.state, self.key, self.time = game, np.zeros(0, np.float32), np.zeros(2, np.uint32), 0
        self.observations, self.actions = space(game.observation), space(game.agent)

    def under(self, game: Game) -> JaxSystem:
        return JaxSystem(demand_jax(game))

    def reset(self, seed: int | None, generator: np.random.Generator) -> np.ndarray:
        self.key = np.asarray(jax.random.key_data(jax.random.key(int(generator.integers(2**31)))))
        state, obs = _reset(self.game, jax.random.wrap_key_data(jnp.asarray(self.key)))
        self.state, self.time = np.asarray(state), 0
        return np.asarray(obs, np.float32)

    def step(self, action: np.ndarray, adversary: np.ndarray) -> Outcome:
        key, time = jax.random.wrap_key_data(jnp.asarray(self.key)), jnp.asarray(self.time)
        players = np.asarray(action, np.float32), np.asarray(adversary, np.float32)
        state, obs, executed, reward, terminated = _step(self.game, self.state, *players, key, time)
        self.state, self.time = np.asarray(state), self.time + 1
        return Outcome(np.asarray(obs, np.float32), np.asarray(executed, np.float32), float(reward), bool(terminated))

    def get_state(self) -> State:
        return {"state": self.state.copy(), "key": self.key.copy(), "time": self.time}

    def set_state(self, saved: State) -> np.ndarray:
        self.state, self.time = np.asarray(saved["state"], np.float32), int(saved["time"])
        self.key = np.asarray(saved["key"], np.uint32)
        return np.asarray(self.game.observe(jnp.asarray(self.state)), np.float32)


class HostSystem:
    """A simulator on the host, disturbed by the adversary or given a mixture of both actions.

    The spaces are the simulator's own, and no precision is lost on the way to it.
    """

    def __init__(self, game: Game, simulator: Simulator, disturbance: Disturbance | None, mixture: str | None):
        self.simulator, self.disturbance, self.mixture = simulator, disturbance, mixture
        self.observations: Any = simulator.env.observation_space
        self.actions: Any = simulator.env.action_space
        self.adversary = space(game.adversary)
        self.strength, self.neutral = np.float32(game.strength), np.asarray(game.neutral)
        self.coin = np.random.default_rng(0)
        self.fresh = True

    def under(self, game: Game) -> HostSystem:
        return HostSystem(game, self.simulator, self.disturbance, self.mixture)

    def reset(self, seed: int | None, generator: np.random.Generator) -> np.ndarray:
        if seed is None and self.fresh:
            seed = int(generator.integers(2**31))
        self.coin, self.fresh = np.random.default_rng([1, int(generator.integers(2**31))]), False
        self._disturb(self.neutral)  # every episode starts on the nominal system
        return self.simulator.reset(seed)

    def step(self, action: np.ndarray, adversary: np.ndarray) -> Outcome:
        adversary = _clip(adversary, self.adversary)
        executed = self._execute(_clip(action, self.actions), adversary)
        self._disturb(adversary)
        obs, reward, terminated, truncated = self.simulator.step(executed)
        return Outcome(obs, executed, reward, terminated, truncated)

    def _execute(self, action: np.ndarray, adversary: np.ndarray) -> np.ndarray:
        if self.mixture == "noisy":
            return mix(self.strength, action, adversary)
        if self.mixture == "probabilistic":
            return adversary if self.coin.random() < self.strength else action
        return action

    def _disturb(self, value: np.ndarray) -> None:
        if self.disturbance is not None:
            self.disturbance.apply(self.simulator.env, value)

    def get_state(self) -> State:
        return {"simulator": self.simulator.get_state(), "coin": self.coin.bit_generator.state}

    def set_state(self, saved: State) -> np.ndarray:
        self.coin.bit_generator.state, self.fresh = saved["coin"], False
        return self.simulator.set_state(saved["simulator"])


def _clip(action: Any, box: gym.spaces.Box) -> np.ndarray:
    """The action in the box; it keeps the precision in which it came, because its cost is charged in that."""
    action = np.asarray(action)
    action = action if action.dtype.kind == "f" else action.astype(box.dtype)
    return np.minimum(np.maximum(action, box.low), box.high)
