"""The problem of the two-player actor-critic on the game on a line: what its tests share."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from probes import GRID, Probe
from rhucrl import replay as store
from rhucrl.networks.policies import Normaliser
from rhucrl.options import ActorCritic
from rhucrl.replay import Transitions
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update as actor_critic
from rhucrl.solvers.actor_critic.problem import Problem, Role, World, begin
from rhucrl.solvers.base import SolverNumbers

DISCOUNT, INNER = 0.9, np.abs(GRID) < 1.5
GAME = Probe(horizon=500, certain=True)
NUMBERS = SolverNumbers(
    beta=jnp.float32(1), discount=jnp.float32(DISCOUNT), trace=jnp.float32(0), learning_rate=jnp.float32(1e-3),
    target_rate=jnp.float32(0.02), average_rate=jnp.float32(0.05), entropy=jnp.float32(-1),
)  # fmt: skip
OPTIONS = ActorCritic(model_steps=3, start_steps=2, updates=4.0, batch=64, held=2, critics=2, width=32)
NONE = jnp.zeros((0, 1, 2))  # rules of feedback
CORNERS = jnp.array([[-1.0], [1.0]])
ALONE, AGENT, RESPONSE = Role(0, False, False), Role(0, True, False), Role(0, True, True)
STATES = jnp.asarray(GRID, jnp.float32)[:, None]


def everywhere() -> store.Replay:
    """Start states over the whole line."""
    data = Transitions(STATES, 0 * STATES, 0 * STATES, STATES)
    return store.add(store.empty(len(GRID), (1, 1, 1), 2), data, jnp.int32(len(GRID)), jax.random.key(0))


def world(game: Probe, model: eqx.Module, discount: float = DISCOUNT, rules: Array = NONE) -> World:
    low = game.reward_range[0]
    rewards, units = jnp.stack([low, jnp.zeros_like(low)]), Normaliser(jnp.zeros(1), jnp.ones(1), ())
    return World(game, model, units, game.observation, rewards, jnp.float32(discount), jnp.float32(1), rules)


@compiled("role", "options")
def improved(here: World, problem: Problem, role: Role, options: ActorCritic, numbers: SolverNumbers) -> Problem:
    return actor_critic.improve(
        here, problem, everywhere(), CORNERS, role, options, numbers, jax.random.key(1)
    )[0]  # fmt: skip


def start(game: Probe = GAME) -> Problem:
    """Before any update; entropy is worth next to nothing, as values with it are those of another game."""
    problem = begin(game, OPTIONS.width, OPTIONS.critics, jax.random.key(0))
    return problem._replace(networks=problem.networks._replace(log_temperature=jnp.float32(-6)))
