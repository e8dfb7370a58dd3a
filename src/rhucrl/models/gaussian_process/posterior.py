"""The posterior of a Gaussian process (`eq:GP-Regression`), in double precision on the host.

What grows with the data is the inverse L^-1 of the Cholesky factor of K + lambda I, which all outputs share. New data
are a block below it (`grow`). When there are more data than points may be kept, points are chosen among them by their
posterior variance (`greedy`), and all data are seen through these (`project`): the deterministic training conditional,
which is the posterior itself where every datum is a point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cholesky, eigh, solve_triangular

from rhucrl.models.gaussian_process.kernels import Kernel

JITTER = 1e-10  # on a kernel matrix without noise
NEGLIGIBLE = 1e-3  # a point whose variance is so small a share of lambda teaches nothing


class Posterior(NamedTuple):
    """mean(z) = k(z) weights; sigma^2(z) = k(z, z) - |factor k(z)|^2, with k(z) at the points."""

    weights: Float[np.ndarray, "m p"]
    factor: Float[np.ndarray, "m m"]
    information: float
    """I(f_Z; y_Z) of one output (`eq:info_gain_gp`); of projected data, an upper bound."""


def grow(
    inverse: Float[np.ndarray, "n n"], across: Float[np.ndarray, "n m"], corner: Float[np.ndarray, "m m"], ridge: float
) -> Float[np.ndarray, "n+m n+m"]:
    """L^-1 with a block more: `across` = k(old, new), `corner` = k(new, new)."""
    n, m = across.shape
    b = inverse @ across
    low = cholesky(corner + ridge * np.eye(m) - b.T @ b, lower=True, check_finite=False)
    grown = np.zeros((n + m, n + m))
    grown[:n, :n] = inverse
    grown[n:, n:] = solve_triangular(low, np.eye(m), lower=True, check_finite=False)
    grown[n:, :n] = -grown[n:, n:] @ (b.T @ inverse)
    return grown


def exact(inverse: Float[np.ndarray, "n n"], y: Float[np.ndarray, "n p"], ridge: float) -> Posterior:
    """The posterior of the data whose factor's inverse is given (`eq:posterior_mean`, `eq:posterior_variance`)."""
    information = -np.log(np.diag(inverse)).sum() - len(y) / 2 * np.log(ridge)
    return Posterior(inverse.T @ (inverse @ y), inverse, float(information))


def greedy(kernel: Kernel, z: Float[np.ndarray, "n d"], most: int, least: float) -> Int[np.ndarray, " m"]:
    """The rows of `z` that are, one after the other, the least known given those before; none below `least`."""
    variance, rows = kernel.diagonal(z), np.zeros((most, len(z)))
    chosen: list[int] = []
    while len(chosen) < most and variance.max() > least:
        i, m = int(variance.argmax()), len(chosen)
        rows[m] = (kernel(z[i : i + 1], z)[0] - rows[:m, i] @ rows[:m]) / np.sqrt(variance[i])
        variance = np.maximum(variance - rows[m] ** 2, 0)
        variance[i] = 0
        chosen.append(i)
    return np.array(chosen, int)


def project(
    kernel: Kernel, points: Float[np.ndarray, "m d"], z: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n p"],
    ridge: float,
) -> Posterior:  # fmt: skip
    """The posterior of all data, seen through the points.

    The features phi(z) = L^-1 k(z), with L the factor of the points' own matrix, have the posterior precision
    I + Phi Phi^T / lambda. What phi does not see of the prior variance stays in sigma.
    """
    low = cholesky(kernel(points, points) + JITTER * np.eye(len(points)), lower=True, check_finite=False)
    features = solve_triangular(low, kernel(points, z), lower=True, check_finite=False)
    values, vectors = eigh(features @ features.T / ridge, check_finite=False)
    values = np.maximum(values, 0)
    white = solve_triangular(low, vectors, lower=True, trans=1, check_finite=False).T  # vectors^T L^-1
    weights = white.T @ ((vectors.T @ (features @ y)) / (ridge * (1 + values))[:, None])
    factor = np.sqrt(values / (1 + values))[:, None] * white
    unseen = np.maximum(kernel.diagonal(z) - (features**2).sum(0), 0).sum()
    return Posterior(weights, lower(factor), float((np.log1p(values).sum() + unseen / ridge) / 2))


def lower(factor: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """A lower triangular matrix with the same F^T F: half of it need not be multiplied."""
    return np.tril(np.linalg.qr(factor[:, ::-1])[1][::-1, ::-1])
