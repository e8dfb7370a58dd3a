"""Networks on their own: derivatives that are written by hand are those of the functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from rhucrl.models.ensemble import shifted, smooth_gate
from rhucrl.solvers.networks import Perceptron, centred, twice, twins


@pytest.mark.parametrize("function", [smooth_gate, centred])
def test_a_derivative_is_that_of_its_function(function):
    x = 2.5 * jax.random.normal(jax.random.key(0), (6, 5))
    x = jnp.where(jnp.abs(jnp.abs(x) - 3) < 0.1, 2.0, x)  # not at the gate's two corners
    check_grads(function, (x,), order=1, modes=("fwd", "rev"), atol=2e-2, rtol=2e-2)


def test_the_gate_is_closed_open_and_smooth_in_between():
    np.testing.assert_allclose(smooth_gate(jnp.array([-4.0, 0.0, 1.5, 4.0])), [0, 0, 1.125, 4])
    np.testing.assert_allclose(jax.vmap(jax.grad(smooth_gate))(jnp.array([-4.0, 0.0, 1.5, 4.0])), [0, 0.5, 1.0, 1])


def test_centred_rows_have_no_mean_and_a_variance_of_one():
    rows = centred(3 + 5 * jax.random.normal(jax.random.key(0), (4, 200)))
    np.testing.assert_allclose(rows.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(rows.var(-1), 1, atol=1e-4)


@pytest.mark.parametrize("normalised", [True, False])
def test_twins_are_two_networks_side_by_side(normalised):
    keys, x = jax.random.split(jax.random.key(0)), jax.random.normal(jax.random.key(1), (3, 4, 5))
    alone = jnp.stack([Perceptron((5, 8, 8, 2), key, normalised)(x) for key in keys])
    np.testing.assert_allclose(twins((5, 8, 8, 2), keys, normalised)(twice(x)), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("stack", [(), (2,)])
def test_a_bias_has_the_sum_of_the_rows_as_its_gradient(stack):
    x, bias = jax.random.normal(jax.random.key(0), (*stack, 6, 5)), jnp.ones((*stack, 5))
    check_grads(shifted, (x, bias), order=1, modes=("rev",), atol=2e-2, rtol=2e-2)
