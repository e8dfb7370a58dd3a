"""A game for PettingZoo: a parallel environment of two players whose rewards sum to zero."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise UsageError("PettingZoo is not installed: pip install 'rhucrl[pettingzoo]'") from error

PLAYERS = ["agent", "adversary"]


class ParallelView(ParallelEnv):
    """Both players of `env`. In scope `episode` the adversary's first action of an episode holds until its end."""

    def __init__(self, env: ZeroSumEnv):
        self.env = env
        self.metadata = {"name": f"rhucrl_{getattr(env.game, 'name', 'game')}", "render_modes": []}
        self.possible_agents, self.agents = list(PLAYERS), []
        self.render_mode = None

    def observation_space(self, agent: str) -> gym.spaces.Space:
        return self.env.observation_space

    def action_space(self, agent: str) -> gym.spaces.Space:
        return self.env.boxes[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.agents, self._chosen = list(PLAYERS), bool(options and options.get("adversary") is not None)
        return self._both(obs), {player: dict(info) for player in PLAYERS}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        if self.env.game.scope == "episode" and not self._chosen:
            self.env.hold(actions["adversary"])
            self._chosen = True
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if terminated or truncated:
            self.agents = []
        rewards = {"agent": reward, "adversary": info["adversary_reward"]}
        infos = {player: {"executed_action": info["executed_action"]} for player in PLAYERS}
        return self._both(obs), rewards, self._both(terminated), self._both(truncated), infos

    def _both(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(PLAYERS, value)

    def close(self) -> None:
        self.env.close()
