"""Plain networks: layers, a perceptron, and the squashed Gaussian policy that acts inside a box."""

from __future__ import annotations

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.game import Box, unwound
from rhucrl.models.ensemble import affine, smooth_gate

CALMEST, WILDEST = -5.0, 1.0  # logarithms of a policy's standard deviation, before it is squashed


class Layer(eqx.Module):
    """An affine layer, with normal weights of variance gain / inputs and no bias at first; or a stack of such."""

    weight: Float[Array, "*stack inputs outputs"]
    bias: Float[Array, "*stack outputs"]

    def __init__(self, inputs: int, outputs: int, gain: float, key: PRNGKeyArray):
        self.weight = jax.random.normal(key, (outputs, inputs)).T * jnp.sqrt(gain / inputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "*stack n inputs"]) -> Float[Array, "*stack n outputs"]:
        return affine(x, self.weight, self.bias)


@jax.custom_jvp
def centred(x: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Rows of mean 0 and variance 1."""
    return standardised(x)[0]


@centred.defjvp
def _(at: tuple[Array], towards: tuple[Array]) -> tuple[Array, Array]:
    (y, rate), (dx,) = standardised(*at), towards
    return y, rate * (dx - dx.mean(-1, keepdims=True) - y * (y * dx).mean(-1, keepdims=True))


def standardised(x: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, "n 1"]]:
    """Such rows, and by how much they were stretched."""
    x = x - x.mean(-1, keepdims=True)
    rate = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
    return x * rate, rate


class Perceptron(eqx.Module):
    """Smooth layers, normalised if asked for: that keeps critics from running away on little data."""

    layers: list[Layer]
    normalised: bool = eqx.field(static=True)

    def __init__(self, sizes: tuple[int, ...], key: PRNGKeyArray, normalised: bool = False):
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [2.0] * (len(sizes) - 2) + [0.01]
        steps = zip(sizes[:-1], sizes[1:], gains, keys, strict=True)
        self.layers, self.normalised = [Layer(*step) for step in steps], normalised

    def __call__(self, x: Float[Array, "*stack_b n"]) -> Float[Array, "*stack_b m"]:
        *before, inputs = x.shape
        stack = before[: self.layers[0].weight.ndim - 2]
        x = x.reshape(*stack, -1, inputs)  # products of plain matrices are the fast ones
        for layer in self.layers[:-1]:
            x = layer(x)
            x = smooth_gate(centred(x) if self.normalised else x)
        return self.layers[-1](x).reshape(*before, -1)


def twins(sizes: tuple[int, ...], keys: PRNGKeyArray, normalised: bool = False) -> Perceptron:
    """Two perceptrons stacked, whose inputs and outputs have a leading axis: half as many kernels, and as fast."""
    return jax.tree.map(lambda *w: jnp.stack(w), *(Perceptron(sizes, key, normalised) for key in keys))


def twice(x: Float[Array, "*b n"]) -> Float[Array, "two *b n"]:
    """The same for both twins."""
    return jnp.broadcast_to(x, (2, *x.shape))


class Normaliser(eqx.Module):
    """States in units of what has been seen, held within five standard deviations; reported entries are left out."""

    mean: Float[Array, " f"]
    std: Float[Array, " f"]
    winding: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b f"]:
        seen = unwound(obs[..., : self.mean.shape[0] - len(self.winding)], self.winding)
        return ((seen - self.mean) / self.std).clip(-5, 5)


def heads(net: Perceptron, normaliser: Normaliser, obs: Float[Array, "*b p"]) -> tuple[Array, Array]:
    """Mean and logarithm of the standard deviation of a policy's action, before it is squashed."""
    mean, log_std = jnp.split(net(normaliser(obs)), 2, -1)
    return mean, jnp.clip(log_std, CALMEST, WILDEST)


class Gaussian(eqx.Module):
    """A diagonal Gaussian, squashed into the box; called with observations alone, its mode."""

    net: Perceptron
    normaliser: Normaliser
    box: Box

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        return self.box.place(jnp.tanh(heads(self.net, self.normaliser, obs)[0]))

    def sample(self, obs: Float[Array, "*b p"], noise: Float[Array, "*b q"]) -> tuple[Array, Float[Array, "*b"]]:
        """An action, and the logarithm of its density in the unit box."""
        mean, log_std = heads(self.net, self.normaliser, obs)
        raw = mean + jnp.exp(log_std) * noise
        squash = 2 * (math.log(2) - raw - jax.nn.softplus(-2 * raw))
        density = -jnp.square(noise) / 2 - log_std - math.log(2 * math.pi) / 2 - squash
        return self.box.place(jnp.tanh(raw)), density.sum(-1)

    def on_host(self) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """The same policy in NumPy, for one observation at a time: cheaper than a step of any simulator."""
        layers = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in self.net.layers]
        mean, std, winding = np.asarray(self.normaliser.mean), np.asarray(self.normaliser.std), self.normaliser.winding
        size, actions = len(mean) - len(winding), self.box.size
        low, high = np.asarray(self.box.low), np.asarray(self.box.high)

        def act(obs: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
            x = ((unwound(obs[:size].astype(np.float32), winding) - mean) / std).clip(-5, 5)
            for weight, bias in layers[:-1]:
                x = x @ weight + bias
                x = x * (x / 6 + 0.5).clip(0, 1)
            x = x @ layers[-1][0] + layers[-1][1]
            centre, log_std = x[:actions], x[actions:]
            raw = centre if noise is None else centre + np.exp(log_std.clip(CALMEST, WILDEST)) * noise
            return low + (np.tanh(raw) + 1) / 2 * (high - low)

        return act
