"""Hyper-parameters of a Gaussian process by maximum likelihood, on some of the data, in double precision."""

from __future__ import annotations

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rhucrl.models.gaussian_process.kernels import Kernel

ROWS = 256  # data that the likelihood is computed of, at most
STEPS = 60  # of L-BFGS
LOWEST = 1e-4  # lambda, in units of the signal's variance: less is not safe where sigma is computed in single precision
SPREAD = 1.5  # standard deviation of the logarithms of length scales and slopes before anything is seen


class Hypers(NamedTuple):
    """What is fitted: the kernel, lambda, and each output's standard deviation before any data."""

    kernel: Kernel
    ridge: float
    signal: Float[np.ndarray, " p"]


def fit(kernel: Kernel, ridge: float, z: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n p"]) -> Hypers:
    """From the hyper-parameters that are given to those that make y likely.

    The outputs share kernel and lambda; given these, each one's signal is known in closed form.
    """
    from scipy.optimize import minimize  # only a fit needs it: it takes long to import

    rows = np.linspace(0, len(z) - 1, min(len(z), ROWS)).astype(int)
    size = z.shape[1]
    weight = np.ones(len(rows))
    data = [np.pad(x, [(0, ROWS - len(rows))] + [(0, 0)] * (x.ndim - 1)) for x in (z[rows], y[rows], weight)]
    start = np.concatenate([np.log(kernel.lengths), np.log(kernel.slopes), [0.0, np.log(ridge)]])
    bounds = [(-3.5, 4.0)] * size + [(-4.0, 1.0)] * size + [(-6.0, 6.0), (np.log(LOWEST), 0.0)]
    with jax.enable_x64(True):
        found = minimize(
            lambda theta: tuple(map(np.asarray, descent(kernel, theta, *data))), start, jac=True, bounds=bounds,
            method="L-BFGS-B", options={"maxiter": STEPS},
        ).x  # fmt: skip
        kernel, least = shaped(kernel, jnp.asarray(found))
        signal = np.sqrt(np.asarray(scores(kernel, least, *map(jnp.asarray, data))[1]))
    return Hypers(jax.tree.map(np.asarray, kernel), float(least), np.maximum(signal, 1e-9))


def shaped(kernel: Kernel, theta: Float[Array, " k"]) -> tuple[Kernel, Array]:
    """The kernel and lambda of a vector of unbounded numbers."""
    d = kernel.half.shape[0]
    parts = (jnp.exp(theta[:d]), jnp.exp(theta[d : 2 * d]), jax.nn.sigmoid(theta[2 * d]))
    return eqx.tree_at(lambda k: (k.lengths, k.slopes, k.share), kernel, parts), jnp.exp(theta[-1])


def scores(kernel: Kernel, ridge: Array, z: Array, y: Array, weight: Array) -> tuple[Array, Float[Array, " p"]]:
    """ln det(K + lambda I) / 2, and the variance y^T (K + lambda I)^-1 y / n of every output's signal."""
    matrix = kernel(z, z) * weight[:, None] * weight + jnp.diag(ridge * weight + 1 - weight)
    low = jnp.linalg.cholesky(matrix)
    white = jax.scipy.linalg.solve_triangular(low, y, lower=True)
    return jnp.log(jnp.diag(low)).sum(), jnp.square(white).sum(0) / weight.sum()


@jax.jit
@functools.partial(jax.value_and_grad, argnums=1)
def descent(kernel: Kernel, theta: Array, z: Array, y: Array, weight: Array) -> Array:
    """The negative logarithm of likelihood and prior, per datum and output, where the signals are the best ones."""
    half, variance = scores(*shaped(kernel, theta), z, y, weight)
    n, p = weight.sum(), y.shape[1]
    prior = jnp.square(theta[: 2 * kernel.half.shape[0]] / SPREAD).sum() / 2
    return (p * half + n / 2 * jnp.log(jnp.maximum(variance, 1e-18)).sum() + prior) / (n * p)
