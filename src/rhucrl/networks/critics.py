"""State-value critics with periodic features.

Values of swing-up games are staircases: one more swing or one fewer is a cliff of a hundred reward units,
and good robust play walks along the cliff's edge. Smooth networks round the edge off. A layer of waves with
learned frequencies in front of the network keeps it sharp.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.networks.layers import Layer, affine


def wave(turns: Array) -> Array:
    """A sine drawn with parabolas, of period 1: continuously differentiable, and much cheaper than a sine."""
    phase = turns - jnp.round(turns)
    return 8 * phase - 16 * phase * jnp.abs(phase)


CriticFunction = Callable[[Float[Array, "*b d"]], Float[Array, "*b"]]
"""What a critic is to those who only ask it."""


class Critic(eqx.Module):
    """V(s), in units of `unit` reward; inputs in units of the game's `scale`."""

    frequencies: Float[Array, "p features"]
    phases: Float[Array, " features"]
    layers: list[Layer]

    def __init__(self, inputs: int, features: int, width: int, frequency: float, key: PRNGKeyArray):
        keys = jax.random.split(key, 5)
        self.frequencies = jax.random.normal(keys[0], (inputs, features)) * frequency
        self.phases = jax.random.uniform(keys[1], (features,))
        sizes = ((inputs + features, width), (width, width), (width, 1))
        gains = (2.0, 2.0, 0.02)
        self.layers = [Layer(*size, gain, k) for size, gain, k in zip(sizes, gains, keys[2:], strict=True)]

    def __call__(self, x: Float[Array, "*b p"]) -> Float[Array, "*b"]:
        *batch, inputs = x.shape
        x = x.reshape(-1, inputs)
        x = jnp.concatenate([x, wave(affine(x, self.frequencies, self.phases))], -1)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x).reshape(batch)
