"""f^(o) and f^(p), one function of a prediction and an eta (`eq:optimistic_transition`, `eq:pessimistic_transition`);
f^(e), one plausible model; and the choice of eta."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rhucrl.models.base import AbstractModel, Prediction

KEENNESS = 0.1  # the cost of full optimism, in units of the critics


def hallucinate(
    prediction: Prediction, eta: Float[Array, "*#b p"], beta: Array | float, noise: Float[Array, "*#b p"] | None
) -> Float[Array, "*b p"]:
    """mu + beta eta sigma_epistemic + omega: eta in [-1, 1]^p chooses among the plausible models.

    eta multiplies the epistemic standard deviation alone; the aleatoric noise is added in every case,
    unless the mean of it is asked for (`noise=None`).
    """
    mean = prediction.mean + beta * eta * prediction.epistemic
    return mean if noise is None else mean + noise * prediction.aleatoric


def sampled(member: tuple[Array, Array], noise: Array) -> Array:
    """mu_i + omega: a member (mean and aleatoric standard deviation) as it is, for J^(e)."""
    mean, aleatoric = member
    return mean + noise * aleatoric


def sketched(
    model: AbstractModel, obs: Array, executed: Array, adversary: Array, shifts: Int[Array, " two"]
) -> Prediction:
    """What two members say, at the cost of two instead of all: a mean and an epistemic variance without bias."""
    (mean, noise), (other, another) = (model.divided(obs, executed, adversary, shifts[i]) for i in range(2))
    share = (model.members - 1) / (2 * model.members)  # of the squared distance of two different members
    epistemic = model.temperature * math.sqrt(share) * jnp.abs(mean - other)
    return Prediction((mean + other) / 2, epistemic, jnp.sqrt((jnp.square(noise) + jnp.square(another)) / 2))


def choose_eta(scale: Array, prediction: Prediction, slope: Array, sign: Array | int, beta: Array) -> Array:
    """eta(s, a, abar) in [-1, 1]^p: the maximiser (minimiser) of the linearised critic.

    Optimism costs a little, KEENNESS critic units (of `scale` reward each) at |eta| = 1, so that it rests where all
    there is to gain is the critic's noise. Pessimism costs nothing.
    """
    gain = beta * prediction.epistemic * slope
    return jnp.where(sign > 0, jnp.clip(gain / (KEENNESS * scale), -1, 1), sign * jnp.sign(gain))
