"""The paper's pendulum swing-up (`ssec:inverted_pendulum`), in pure JAX.

The state is (theta, omega) with theta = 0 upright; the observation is (cos theta, sin theta, omega).
Every setting of the paper is here: the adversary changes gravity and mass (`adversarial`), mixes its
torque into the agent's (`noisy`, `probabilistic`), or fixes the mass for an episode (`parameter`).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.game import Box, Execution, JaxGame, Scope, execution, join

Kind = Literal["none", "adversarial", "noisy", "probabilistic", "parameter"]
Reward = Literal["dense", "sparse"]

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
MAX_TORQUE, MAX_SPEED = 2.0, 8.0
ADVERSARY_SIZE: dict[Kind, int] = {"none": 1, "adversarial": 2, "noisy": 1, "probabilistic": 1, "parameter": 1}


def wrap(theta: Array) -> Array:
    """The angle in [-pi, pi)."""
    return (theta + math.pi) % (2 * math.pi) - math.pi


class Pendulum(JaxGame):
    strength: Float[Array, ""] = eqx.field(converter=jnp.float32)
    scope: Scope = eqx.field(static=True, default="step")
    horizon: int = eqx.field(static=True, default=200)
    kind: Kind = eqx.field(static=True, default="adversarial")
    rewards: Reward = eqx.field(static=True, default="dense")
    action_cost: float = eqx.field(static=True, default=0.001)

    @property
    def agent(self) -> Box:
        return Box(jnp.array([-MAX_TORQUE]), jnp.array([MAX_TORQUE]))

    @property
    def adversary(self) -> Box:
        size = ADVERSARY_SIZE[self.kind]
        if self.kind in ("noisy", "probabilistic"):
            return Box(jnp.full(size, -MAX_TORQUE), jnp.full(size, MAX_TORQUE))
        reach = jnp.zeros(size) if self.kind == "none" else jnp.full(size, self.strength)
        return Box(1 - reach, 1 + reach)

    @property
    def neutral(self) -> Array:
        size = ADVERSARY_SIZE[self.kind]
        return jnp.zeros(size) if self.kind in ("noisy", "probabilistic") else jnp.ones(size)

    @property
    def observation(self) -> Box:
        high = jnp.array([1.0, 1.0, MAX_SPEED])
        return Box(-high, high)

    @property
    def scale(self) -> Array:
        return jnp.array([1.0, 1.0, MAX_SPEED / 2])

    @property
    def reward_range(self) -> tuple[Array, Array]:
        effort = self.action_cost * MAX_TORQUE**2
        if self.rewards == "sparse":
            return jnp.float32(-effort), jnp.float32(1.0)
        return jnp.float32(-(math.pi**2 + 0.1 * MAX_SPEED**2 + effort)), jnp.float32(0.0)

    def options(self) -> dict[str, Any]:
        mixture = self.kind if self.kind in ("noisy", "probabilistic") else None
        return {
            "setting": "action" if mixture else self.kind,
            "mixture": mixture,
            "strength": round(float(self.strength), 6),
            "scope": self.scope,
            "reward": self.rewards,
            "action_cost": self.action_cost,
            "horizon": self.horizon,
        }

    def execute(self, action: Array, adversary: Array) -> Execution:
        return execution(self.kind, self.strength, action, adversary)

    def model_input(self, obs: Array, executed: Array, adversary: Array) -> Array:
        return join(obs, executed, adversary) if self.kind in ("adversarial", "parameter") else join(obs, executed)

    def reward(self, obs: Array, executed: Array, adversary: Array, next_obs: Array) -> Array:
        theta, omega = jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]
        effort = self.action_cost * executed[..., 0] ** 2
        if self.rewards == "sparse":
            return upright_and_slow(theta, omega) - effort
        return -(theta**2 + 0.1 * omega**2 + effort)

    def project(self, obs: Array) -> Array:
        angle = obs[..., :2] / jnp.maximum(jnp.linalg.norm(obs[..., :2], axis=-1, keepdims=True), 1e-6)
        return jnp.concatenate([angle, jnp.clip(obs[..., 2:], -MAX_SPEED, MAX_SPEED)], -1)

    def sample(self, key: PRNGKeyArray, n: int) -> Array:
        return self.observe(jax.random.uniform(key, (n, 2), minval=-1.0) * jnp.array([math.pi, MAX_SPEED]))

    def reset(self, key: PRNGKeyArray) -> Array:
        return jnp.array([math.pi, 0.0])

    def observe(self, state: Array) -> Array:
        theta, omega = state[..., 0], state[..., 1]
        return jnp.stack([jnp.cos(theta), jnp.sin(theta), omega], -1)

    def state(self, obs: Array) -> Array:
        """The state that is observed as `obs`."""
        return jnp.stack([jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]], -1)

    def physics(self, adversary: Array) -> tuple[Array, Array]:
        """Relative gravity and relative mass under the adversary's action."""
        one = jnp.ones(adversary.shape[:-1])
        if self.kind == "adversarial":
            return adversary[..., 0], adversary[..., 1]
        return (one, adversary[..., 0]) if self.kind == "parameter" else (one, one)

    def velocity(self, state: Array, executed: Array, adversary: Array) -> Array:
        """The next angular velocity before it is clipped: all that the next angle depends on."""
        theta, omega = state[..., 0], state[..., 1]
        gravity, mass = self.physics(adversary)
        fall = 3 * GRAVITY * gravity / (2 * LENGTH) * jnp.sin(theta)
        return omega + DT * (fall + 3 * executed[..., 0] / (MASS * mass * LENGTH**2))

    def step(self, state: Array, executed: Array, adversary: Array) -> Array:
        omega = self.velocity(state, executed, adversary)
        return jnp.stack([state[..., 0] + DT * omega, jnp.clip(omega, -MAX_SPEED, MAX_SPEED)], -1)

    def dynamics(self, obs: Array, executed: Array, adversary: Array) -> Array:
        """f(s, a, abar) on observations: what a known model is given."""
        return self.observe(self.step(self.state(obs), executed, adversary))


def upright_and_slow(theta: Array, omega: Array) -> Array:
    """1 near the upright rest, falling smoothly to exactly 0 outside |theta| < .3, |omega| < 1.5."""

    def bump(x: Array, edge: float) -> Array:
        return jnp.square(jnp.maximum(0.0, 1 - jnp.square(x / edge)))

    return bump(theta, 0.3) * bump(omega, 1.5)
