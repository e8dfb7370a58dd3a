"""Networks on their own: derivatives that are written by hand are those of the functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from rhucrl.networks.layers import Perceptron, affine, centred, smooth_gate, spread, stacked


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
def test_a_stack_is_several_networks_side_by_side(normalised):
    keys, x = jax.random.split(jax.random.key(0), 3), jax.random.normal(jax.random.key(1), (3, 4, 5))
    alone = jnp.stack([Perceptron((5, 8, 8, 2), key, normalised)(x) for key in keys])
    stack = stacked((5, 8, 8, 2), keys, normalised)
    np.testing.assert_allclose(stack(spread(x, stack)), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("stack", [(), (2,)])
@pytest.mark.parametrize("outputs", [1, 5])
def test_an_affine_layer_has_the_gradients_of_one(stack, outputs):
    shapes = (6, 4), (4, outputs), (outputs,)
    keys = jax.random.split(jax.random.key(0), 3)
    given = tuple(jax.random.normal(key, (*stack, *shape)) for key, shape in zip(keys, shapes, strict=True))
    check_grads(affine, given, order=1, modes=("rev",), atol=2e-2, rtol=2e-2)


def test_an_affine_layer_computes_no_gradient_that_nobody_asked_for():
    x, weight, bias = jnp.ones((6, 4)), jnp.ones((4, 3)), jnp.zeros(3)
    frozen = jax.make_jaxpr(jax.grad(lambda x: affine(x, weight, bias).sum()))(x)
    moving = jax.make_jaxpr(jax.grad(lambda x, weight: affine(x, weight, bias).sum(), argnums=(0, 1)))(x, weight)
    assert (str(frozen).count("dot_general"), str(moving).count("dot_general")) == (3, 4)  # one for the bias
