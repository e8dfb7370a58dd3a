"""Layers and perceptrons, whose gradients are products of matrices as fast as the machine has them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Key, PRNGKeyArray

BROAD = 64  # columns and rows of a matrix that is worth a transposition


@jax.custom_vjp
def affine(
    x: Float[Array, "*stack n d"], weight: Float[Array, "*stack d w"], bias: Float[Array, "*stack w"]
) -> Float[Array, "*stack n w"]:
    """`x @ weight + bias`; its gradients are products of matrices that lie in memory as the fastest product reads them.

    A product that transposes on the way takes a fifth longer than one after a transposition, where rows are a power
    of two long; a sum over rows takes five times as long as a product with ones.
    """
    return x @ weight + bias[..., None, :]


def transposed(matrix: Float[Array, "*stack n m"]) -> Float[Array, "*stack m n"]:
    """Before it is used, where that pays."""
    return jax.lax.optimization_barrier(matrix.mT) if min(matrix.shape[-2:]) >= BROAD else matrix.mT


def _affine_forward(x: Any, weight: Any, bias: Any) -> tuple[Array, tuple[Any, Any]]:
    given = tuple(given.value for given in (x, weight, bias))
    return affine(*given), (given[0] if weight.perturbed else None, given[1] if x.perturbed else None)


def _affine_back(kept: tuple[Array | None, Array | None], g: Any) -> tuple[Array | None, Array | None, Array | None]:
    if isinstance(g, SymbolicZero):
        return None, None, None
    x, weight = kept
    dx = None if weight is None else g @ transposed(weight)
    dw = None if x is None else (g.mT @ x).mT if g.shape[-1] == 1 else transposed(x) @ g
    return dx, dw, (jnp.ones((*g.shape[:-2], 1, g.shape[-2])) @ g)[..., 0, :]


affine.defvjp(_affine_forward, _affine_back, symbolic_zeros=True)


@jax.custom_jvp
def smooth_gate(x: Array) -> Array:
    """SiLU with its sigmoid drawn as a ramp: once differentiable, and free of exponentials."""
    return x * jnp.clip(x / 6 + 0.5, 0.0, 1.0)


@smooth_gate.defjvp
def _(at: tuple[Array], towards: tuple[Array]) -> tuple[Array, Array]:
    """One kernel forward and one backward, where the derivative of every part would take several."""
    (x,), (dx,) = at, towards
    return smooth_gate(x), jnp.where(jnp.abs(x) < 3, x / 3 + 0.5, (x > 0).astype(x.dtype)) * dx


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
def centred(x: Float[Array, "*b m"]) -> Float[Array, "*b m"]:
    """Rows of mean 0 and variance 1."""
    return standardised(x)[0]


@centred.defjvp
def _(at: tuple[Array], towards: tuple[Array]) -> tuple[Array, Array]:
    (y, rate), (dx,) = standardised(*at), towards
    return y, rate * (dx - dx.mean(-1, keepdims=True) - y * (y * dx).mean(-1, keepdims=True))


def standardised(x: Float[Array, "*b m"]) -> tuple[Float[Array, "*b m"], Float[Array, "*b 1"]]:
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


def stacked(sizes: tuple[int, ...], keys: Key[Array, " k"], normalised: bool = False) -> Perceptron:
    """Perceptrons as one, whose inputs and outputs have a leading axis: fewer kernels, and as fast."""
    return jax.tree.map(lambda *w: jnp.stack(w), *(Perceptron(sizes, key, normalised) for key in keys))


def spread(x: Float[Array, "*b n"], stack: Perceptron) -> Float[Array, "k *b n"]:
    """The same for every perceptron of a stack."""
    return jnp.broadcast_to(x, (stack.layers[0].weight.shape[0], *x.shape))


def towards(slow: Any, fast: Any, rate: Array | float) -> Any:
    """Polyak averaging: a small step of the slow weights towards the fast ones."""
    return jax.tree.map(lambda s, f: s + rate * (f - s), slow, fast)
