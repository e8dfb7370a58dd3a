"""f^(o), f^(p): one function of a prediction and an eta (`eq:optimistic_transition`, `eq:pessimistic_transition`)."""

from __future__ import annotations

from jaxtyping import Array, Float

from rhucrl.models.base import Prediction


def hallucinate(
    prediction: Prediction, eta: Float[Array, "*b p"], beta: Float[Array, ""], noise: Float[Array, "*b p"] | None
) -> Float[Array, "*b p"]:
    """mu + beta eta sigma_epistemic + omega: eta in [-1, 1]^p chooses among the plausible models.

    eta multiplies the epistemic standard deviation alone; the aleatoric noise is added in every case,
    unless the mean of it is asked for (`noise=None`).
    """
    mean = prediction.mean + beta * eta * prediction.epistemic
    return mean if noise is None else mean + noise * prediction.aleatoric
