"""A game small enough to be solved exactly: a point on a line, its value by dynamic programming on a fine grid.

And the way into games that are not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rhucrl.config import TrainConfig, options_with
from rhucrl.envs.game import Box, Execution, JaxGame, join
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.options import options_of
from rhucrl.runtime.compilation import enable_cache

enable_cache()

EDGE = 2.0
PUSH, SHOVE, EFFORT = 0.3, 0.2, 0.05
GRID = np.linspace(-EDGE, EDGE, 201)
ACTIONS, SHOVES = np.linspace(-1, 1, 17), np.linspace(-1, 1, 5)
RHUCRL = [sys.executable, "-m", "rhucrl"]
SMALL_ROBOT = {
    "random_episodes": 1, "heads": 2, "model_width": 8, "model_rounds": 2, "round": 3, "model_batch": 16, "width": 8,
    "batch": 10, "updates": 0.5, "critics": 2, "model_steps": 2, "start_steps": 2,
}  # fmt: skip
"""The numbers of a run of the actor-critic that is over in seconds: those of the presets are for robots that run."""


def simulator(env):
    """The Gymnasium environment that a game on the host is played on."""
    return env.system.simulator.env.unwrapped


class Probe(JaxGame):
    """s' = s + .3 a + .2 strength abar in [-2, 2]; the reward is -(s - goal)^2 - .05 a^2.

    With probability `mix` the adversary's action is executed in the agent's place (`certain`: never, and the game
    says so by a single outcome). Beyond `end` the game is over.
    """

    strength: jax.Array = eqx.field(converter=jnp.float32, default=1.0)
    goal: jax.Array = eqx.field(converter=jnp.float32, default=0.0)
    mix: jax.Array = eqx.field(converter=jnp.float32, default=0.0)
    end: jax.Array = eqx.field(converter=jnp.float32, default=jnp.inf)
    scope: str = eqx.field(static=True, default="step")
    horizon: int = eqx.field(static=True, default=20)
    certain: bool = eqx.field(static=True, default=False)

    agent = property(lambda self: Box(-jnp.ones(1), jnp.ones(1)))
    adversary = property(lambda self: Box(-jnp.ones(1), jnp.ones(1)))
    neutral = property(lambda self: jnp.zeros(1))
    observation = property(lambda self: Box(-EDGE * jnp.ones(1), EDGE * jnp.ones(1)))
    scale = property(lambda self: jnp.ones(1))
    reward_range = property(lambda self: (-jnp.square(EDGE + jnp.abs(self.goal)) - EFFORT, jnp.float32(0)))

    def execute(self, action, adversary):
        if self.certain:
            return Execution(jnp.ones(1), action[None])
        return Execution(jnp.stack([1 - self.mix, self.mix]), jnp.stack(jnp.broadcast_arrays(action, adversary)))

    def model_input(self, obs, executed, adversary):
        return join(obs, executed, adversary)

    def reward(self, obs, executed, adversary, next_obs):
        return -jnp.square(obs[..., 0] - self.goal) - EFFORT * jnp.square(executed[..., 0])

    def terminated(self, next_obs):
        return next_obs[..., 0] > self.end

    def sample(self, key, n):
        return jax.random.uniform(key, (n, 1), minval=-EDGE, maxval=EDGE)

    def reset(self, key):
        return jnp.ones(1)

    def observe(self, state):
        return state

    def step(self, state, executed, adversary):
        return self.project(self.dynamics(state, executed, adversary))

    def dynamics(self, obs, executed, adversary):
        return obs + PUSH * executed + self.strength * SHOVE * adversary


class Unsure(AbstractModel):
    """The probe's dynamics, with a known epistemic and aleatoric standard deviation everywhere: two members apart."""

    game: Probe
    epistemic: jax.Array = eqx.field(converter=jnp.float32, default=0.0)
    aleatoric: jax.Array = eqx.field(converter=jnp.float32, default=0.0)
    temperature: jax.Array = eqx.field(converter=jnp.float32, default=1.0)

    members = 2

    def mean(self, obs, executed, adversary):
        return self.game.dynamics(obs, executed, adversary)

    def doubt(self, obs, executed, adversary):
        """The epistemic standard deviation."""
        return self.epistemic

    def predict(self, obs, executed, adversary):
        mean = self.mean(obs, executed, adversary)
        doubt = jnp.broadcast_to(self.doubt(obs, executed, adversary), mean.shape)
        return Prediction(mean, doubt, jnp.full_like(mean, self.aleatoric))

    def member(self, obs, executed, adversary, index):
        mean, doubt, aleatoric = self.predict(obs, executed, adversary)
        return mean + (2 * jnp.broadcast_to(index, mean.shape[:-1]) - 1)[..., None] * doubt, aleatoric

    def divided(self, obs, executed, adversary, shift):
        n = obs.shape[-2]
        return self.member(obs, executed, adversary, (jnp.arange(n) * self.members // n - shift) % self.members)

    def update(self, config, memory, replay, key):
        return self, memory, {}


class Solution(NamedTuple):
    """V, the agent's max-min action and the adversary's answer, on the grid."""

    value: np.ndarray
    action: np.ndarray
    shove: np.ndarray

    def at(self, states) -> np.ndarray:
        return np.interp(states, GRID, self.value)


def solution(game: Probe, discount: float, actions=ACTIONS, shoves=SHOVES, reach=0.0, sign=0) -> Solution:
    """max_a min_abar max_eta (sign -1: min_eta) by value iteration; actions and shoves may be a row per grid state.

    `reach` is beta sigma: eta moves the next state by as much, in either direction.
    """
    actions, shoves = np.atleast_2d(actions), np.atleast_2d(shoves)
    s, a, b = GRID[:, None, None], actions[:, :, None], shoves[:, None, :]
    etas = np.linspace(-1, 1, 3) if sign else [0.0]
    outcomes = [(p, x) for p, x in ((1 - float(game.mix), a), (float(game.mix), b)) if p]

    def ahead(executed, eta):
        following = s + PUSH * executed + float(game.strength) * SHOVE * b + eta * reach
        following = np.clip(following, -EDGE, EDGE)
        reward = -np.square(s - float(game.goal)) - EFFORT * np.square(executed)
        return reward, discount * (following <= float(game.end)), following

    plans = [[(p, *ahead(executed, eta)) for p, executed in outcomes] for eta in etas]
    value = np.zeros(GRID.size)
    for _ in range(120):
        q = [sum(p * (r + go_on * np.interp(f, GRID, value)) for p, r, go_on, f in plan) for plan in plans]
        q = np.min(q, 0) if sign < 0 else np.max(q, 0)
        value = q.min(-1).max(-1)
    a = q.min(-1).argmax(-1)
    every = np.arange(GRID.size)
    b = q[every, a].argmin(-1)
    chosen = (np.broadcast_to(x, (GRID.size, x.shape[1]))[every, i] for x, i in ((actions, a), (shoves, b)))
    return Solution(value, *chosen)


def having(options: dict[str, Any], **choice: Any) -> dict[str, Any]:
    """The choice, and those of some options that a run with it has."""
    config = TrainConfig.preset(**choice)
    parts = [options_with(type(its), config.algo) for its in (config.model, config.solver) if its]
    names = {*options_of(TrainConfig), *(flag for part in parts for flag in part)}
    names -= {"random_episodes"} if config.solver.kind == "on-policy" else set()
    return {name: value for name, value in options.items() if name in names} | choice


def typed(options: dict[str, Any], command: str) -> list[str]:
    """Words of the command line: those of some options that `train` has behind these words."""
    env, *words = command.split()
    given = {name[2:]: word for name, word in zip(words[::2], words[1::2], strict=True)}
    choice = {name: given[name] for name in ("algo", "model", "solver", "setting") if name in given}
    found = having(options, env=env, **choice)
    flags = {name: value for name, value in found.items() if name in options}
    return [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, its output buffered as in a pipe."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run([*RHUCRL, *arguments], **{"capture_output": True, "text": True, "env": buffered, **options})
