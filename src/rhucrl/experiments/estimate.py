"""What a run would cost, from the shapes of its programs: nothing is compiled and nothing is trained."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.experiments.flops import gflop
from rhucrl.training import protocol
from rhucrl.training.loop import env_of, learner_of, state_like

RATES = {"look-ahead": 33.0, "actor-critic": 130.0}
"""GFLOP per CPU second that whole runs reached on one core: the pendulum's (`benchmarks/cost.py`), and the hopper's."""
PROGRAMS_MB = {"actor-critic": 1200}  # at the peak, while they are compiled (`benchmarks/robots.py`)
PROGRAM_MB = 700  # Python, JAX, other compiled programs and the simulator
BYTES = 1e6  # of a megabyte


class Cost(NamedTuple):
    """Of one run; no CPU time where the solver's work is not in its programs' shapes."""

    cpu_minutes: float | None
    memory_mb: float
    disk_mb: float


def estimate(config: TrainConfig) -> Cost:
    """Memory and disk from the run's state, time from its products of matrices."""
    game = env_of(config, trust=True).game
    state = state_like(config, game, config.episodes)
    size = _bytes(state) / BYTES
    rate = RATES.get(config.solver.kind) if config.model is not None else None
    minutes = rate and _gflop(config, game, state) * config.episodes / rate / 60
    policies = 1 + len(learner_of(config).policies(state))  # and the last one
    disk = 2 * size + policies * _bytes(state.last) / BYTES
    return Cost(minutes, PROGRAMS_MB.get(config.solver.kind, PROGRAM_MB) + 3 * size, disk)


def _bytes(tree: Any) -> int:
    leaves = [x for x in jax.tree.leaves(tree) if hasattr(x, "dtype")]
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)


def _gflop(config: TrainConfig, game: Game, state: Any) -> float:
    """Of an episode: of both problems, and of a fit of as many rounds as it may have."""
    programs, numbers = protocol.programs(config), protocol.numbers(config, 1)
    solver, keys = protocol.solver_of(programs, game), jax.random.split(jax.random.key(0))
    solving = jax.make_jaxpr(lambda s, n: solver.improve(s.model, s.replay, s.learner, n, keys)[0])
    return gflop(solving(state, numbers)) + _fit_gflop(config, game)


def _fit_gflop(config: TrainConfig, game: Game) -> float:
    if config.model.kind != "ensemble":
        return 0.0
    its = config.model
    sizes = [jnp.zeros(n) for n in (game.predicted_size, game.agent.size, game.adversary.size)]
    inputs, outputs = game.model_input(*sizes).shape[-1], 2 * game.predicted_size
    weights = its.width * (inputs + (its.layers - 1) * its.width + outputs)
    epochs = its.epochs and its.epochs * config.episodes * game.horizon / 2  # of data that grow to the end
    steps = its.steps * its.rounds if epochs is None else epochs / its.batch
    return 6e-9 * its.heads * weights * its.batch * steps  # forward, and twice that backward
