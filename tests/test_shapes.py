"""Shapes in annotations are checked: where one is wrong, the tests fail."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from rhucrl import hallucination, replay
from rhucrl.envs.game import Box
from rhucrl.envs.pendulum import Pendulum
from rhucrl.models import ensemble
from rhucrl.models.base import Prediction
from rhucrl.networks import critics, layers, policies
from rhucrl.solvers import base
from rhucrl.solvers.look_ahead import backup, candidates, value_iteration
from rhucrl.theory import bounds
from shapes import MODULES

SQUARE, ROWS, COLUMN = jnp.zeros((2, 2)), jnp.zeros((3, 2)), jnp.zeros(3)
WRONG = {
    "envs.game": lambda: Box(COLUMN, COLUMN).clip(jnp.zeros(3, int)),
    "envs.pendulum": lambda: Pendulum(0.2).reset(COLUMN),
    "networks": lambda: policies.Nobody(ROWS),
    "models": lambda: ensemble.ridge(ROWS, SQUARE, COLUMN),
    "hallucination": lambda: hallucination.hallucinate(Prediction(*[ROWS] * 3), ROWS, 1.0, COLUMN),
    "theory": lambda: bounds.information_bound(np.ones((3, 2)), 5, 0.1),
    "replay": lambda: replay.statistics(ROWS, jnp.zeros(2)),
    "solvers.base": lambda: base.gaussian_pair(Pendulum(0.2), COLUMN, ROWS, []),
    "solvers.look_ahead": lambda: value_iteration.at_pair(ROWS, jnp.zeros(3, int)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_wrong_shape_is_refused(name):
    with pytest.raises(TypeCheckError):
        WRONG[name]()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: critics.Critic(2, 4, 4, 1.0, COLUMN),
        lambda: layers.stacked((2, 2), jax.random.key(0)),
        lambda: policies.Normaliser(COLUMN, ROWS, ()),
        lambda: candidates.agent_candidates(ROWS, 3),
        lambda: backup.settle(Pendulum(0.2), COLUMN, COLUMN),
    ],
)
def test_every_module_of_a_room_is_checked(wrong):
    with pytest.raises(TypeCheckError):
        wrong()


def test_right_shapes_are_taken_from_numpy_too():
    mean, std = replay.statistics(np.ones((3, 2), np.float32), np.ones(3, np.float32))
    assert mean.shape == std.shape == (2,)
