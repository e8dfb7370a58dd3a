"""Recalibration by temperature, and coverage: assumption `as:well_calibrated_model` held against data."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rhucrl.models.base import Prediction

LEVELS = jnp.linspace(0.05, 0.95, 19)
TEMPERATURES = jnp.logspace(-2, 2, 161)


class Coverage(NamedTuple):
    """Shares of (state, dimension) residuals inside beta sigma_epistemic, and inside the 90 % predictive interval."""

    confidence: Array
    predictive: Array


def total(prediction: Prediction) -> Array:
    return jnp.sqrt(jnp.square(prediction.epistemic) + jnp.square(prediction.aleatoric))


def calibration_error(scores: Float[Array, "n p"], weight: Float[Array, " n"], temperature: Array) -> Array:
    """Expected calibration error of central intervals, for residuals in standard deviations."""
    inside = jnp.abs(scores)[..., None] <= temperature * jax.scipy.stats.norm.ppf(0.5 + LEVELS / 2)
    share = jnp.einsum("npl,n->l", inside.astype(jnp.float32), weight) / jnp.maximum(weight.sum() * scores.shape[1], 1)
    return jnp.abs(share - LEVELS).mean()


def temperature(prediction: Prediction, following: Array, weight: Float[Array, " n"]) -> Array:
    """The temperature in [.01, 100] with the least expected calibration error on held-out data."""
    scores = (following - prediction.mean) / jnp.maximum(total(prediction), 1e-12)
    errors = jax.lax.map(lambda t: calibration_error(scores, weight, t), TEMPERATURES)
    return TEMPERATURES[errors.argmin()]


def coverage(prediction: Prediction, following: Array, beta: Array, weight: Float[Array, " n"]) -> Coverage:
    """Prequential coverage, when `following` was observed after the model was fitted."""
    residual = jnp.abs(following - prediction.mean)
    ninety = jax.scipy.stats.norm.ppf(0.95)

    def share(inside: Array) -> Array:
        return (weight[:, None] * inside).sum() / (weight.sum() * following.shape[1])

    return Coverage(share(residual <= beta * prediction.epistemic), share(residual <= ninety * total(prediction)))
