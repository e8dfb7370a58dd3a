"""The Gymnasium face of a game, and its two one-player views.

`ZeroSumEnv` is what the rest of the world plays: a dictionary of two actions in, the agent's reward out. The
views hide one player, so that any single-agent library can train the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.systems import JaxSystem, System, space
from rhucrl.errors import UsageError

Info = dict[str, Any]


class ZeroSumEnv(gym.Env):
    """A game played step by step: `step({"agent": a, "adversary": abar})`, the reward being the agent's.

    In scope `episode` the adversary's value comes with `reset(options={"adversary": value})` (neutral without
    it) and holds until the next reset, whatever the steps say.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own type)

    def __init__(self, game: Game, system: System | None = None):
        if system is None and not isinstance(game, JaxGame):
            raise UsageError("this game is no system of its own: make it with rhucrl.make or rhucrl.wrap")
        self.game, self.system = game, system or JaxSystem(game)  # type: ignore[arg-type]
        self.observation_space = self.system.observations
        self.boxes = {"agent": self.system.actions, "adversary": space(game.adversary)}
        self.action_space = gym.spaces.Dict(dict(self.boxes))
        self.neutral = np.asarray(game.neutral, np.float32)
        self.held, self.once, self.horizon = self.neutral, game.scope == "episode", game.horizon
        self.time: int | None = None
        self.taken = 0  # steps since it was made

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.held = self.neutral
        if options and options.get("adversary") is not None:
            self.hold(options["adversary"])
        self.time = 0
        return self.system.reset(seed, self.np_random), {}

    def step(self, action: dict[str, Any]) -> tuple[np.ndarray, float, bool, bool, Info]:
        if self.time is None:
            raise gym.error.ResetNeeded("call reset before step")
        if not isinstance(action, dict) or "agent" not in action or not (self.once or "adversary" in action):
            raise UsageError(
                "two players act here: step({'agent': action, 'adversary': env.neutral}); "
                "rhucrl.AgentView(env) is the plain environment that takes the agent's action alone"
            )
        adversary = self.held if self.once else action["adversary"]
        obs, executed, reward, terminated, truncated = self.system.step(action["agent"], adversary)
        self.time, self.taken = self.time + 1, self.taken + 1
        info = {"adversary_reward": -reward, "executed_action": executed}
        truncated = (truncated or self.time >= self.horizon) and not terminated
        return obs, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """Everything that the rest of the episode and all later ones depend on: arrays and plain numbers."""
        if self.time is None:
            raise gym.error.ResetNeeded("call reset before get_state")
        generator = self.np_random.bit_generator.state
        return {**self.system.get_state(), "time": self.time, "held": self.held.copy(), "generator": generator}

    def set_state(self, saved: dict[str, Any]) -> np.ndarray:
        """Continue exactly where `get_state` was called; returns the observation there."""
        self.time, self.held = int(saved["time"]), np.asarray(saved["held"], np.float32)
        self.np_random.bit_generator.state = saved["generator"]
        return self.system.set_state(saved)

    def at(self, strength: float) -> ZeroSumEnv:
        """The same system under an adversary of another strength; both environments share it, so play one at a time."""
        game = eqx.tree_at(lambda game: game.strength, self.game, jnp.asarray(strength, self.game.strength.dtype))
        return ZeroSumEnv(game, self.system.under(game))

    def hold(self, value: Any) -> None:
        """Fix the adversary's value for the episode that begins (scope `episode`)."""
        if not self.once:
            raise UsageError("this adversary acts every step: pass its action to step, or make scope='episode'")
        value, box = np.asarray(value, np.float32).reshape(-1), self.boxes["adversary"]
        if not box.contains(value):
            raise UsageError(f"adversary value {value.tolist()} is outside {box.low.tolist()} to {box.high.tolist()}")
        self.held = value


class AgentView(gym.Env):
    """The agent's side: a plain environment in which the adversary is neutral, or fixed to a callable (obs, time)."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env: ZeroSumEnv, adversary: Callable[[Any, Any], Any] | None = None):
        self.env, self.adversary = env, adversary
        self.observation_space, self.action_space = env.observation_space, env.boxes["agent"]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.seen, info = self.env.reset(seed=seed, options=options)
        if self.adversary is not None and self.env.game.scope == "episode":
            self.env.hold(self.adversary(self.seen, np.int32(0)))
        return self.seen, info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        time = np.int32(self.env.time or 0)
        against = self.env.neutral if self.adversary is None else self.adversary(self.seen, time)
        self.seen, reward, terminated, truncated, info = self.env.step({"agent": action, "adversary": against})
        return self.seen, reward, terminated, truncated, info


class AdversaryView(gym.Env):
    """The adversary's side: the agent's policy is part of the world and the reward is negated.

    In scope `episode` the adversary acts once, so one step of this view is a whole episode.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env: ZeroSumEnv, policy: Callable[[Any], Any]):
        self.env, self.policy = env, policy
        self.observation_space, self.action_space = env.observation_space, env.boxes["adversary"]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.seen, info = self.env.reset(seed=seed, options=options)
        return self.seen, info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        if self.env.game.scope == "step":
            return self._one(action)
        self.env.hold(action)
        total, done = 0.0, False
        while not done:
            _, reward, terminated, truncated, info = self._one(action)
            total, done = total + reward, terminated or truncated
        return self.seen, total, True, False, info

    def _one(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        both = {"agent": self.policy(self.seen), "adversary": action}
        self.seen, reward, terminated, truncated, info = self.env.step(both)
        return self.seen, -reward, terminated, truncated, info
