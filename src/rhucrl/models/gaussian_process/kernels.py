"""Kernels of Gaussian processes (`section:gp_models`), of NumPy's arrays as of JAX's.

Inputs are measured from the centre of their range in units of half of it, so that they lie in [-1, 1]^d. There k(z, z)
is at most 1, with any slopes, as the theory assumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
from jaxtyping import Float

Kind = Literal["linear", "squared-exponential", "sum", "product"]


class Kernel(eqx.Module):
    """A kernel by name; every input has its own length scale and its own slope (ARD)."""

    centre: Float[Any, " d"]
    half: Float[Any, " d"]
    lengths: Float[Any, " d"]
    slopes: Float[Any, " d"]
    share: Float[Any, ""]
    """Of a sum: the linear part's."""
    kind: Kind = eqx.field(static=True)

    def __call__(self, z: Float[Any, "n d"], other: Float[Any, "m d"]) -> Float[Any, "n m"]:
        return PARTS[self.kind](self, (z - self.centre) / self.half, (other - self.centre) / self.half)

    def diagonal(self, z: Float[Any, "n d"]) -> Float[Any, " n"]:
        """k(z, z)."""
        x = (z - self.centre) / self.half
        flat = 1 + 0 * x[:, 0]
        steep = (1 + (self.slopes * x * self.slopes * x).sum(-1)) / (1 + (self.slopes * self.slopes).sum())
        parts = {"linear": steep, "squared-exponential": flat, "product": steep}
        return parts[self.kind] if self.kind in parts else self.share * steep + (1 - self.share) * flat


def linear(kernel: Kernel, x: Any, y: Any) -> Any:
    """Affine functions: 1 + sum of slopes squared times products, over what that is in a corner of the range."""
    return (1 + (kernel.slopes * x) @ (kernel.slopes * y).T) / (1 + (kernel.slopes * kernel.slopes).sum())


def squared_exponential(kernel: Kernel, x: Any, y: Any) -> Any:
    # Differences rather than |x|^2 + |y|^2 - 2 x y: in single precision that leaves only three digits of close points.
    x, y, exp = x / kernel.lengths, y / kernel.lengths, x.__array_namespace__().exp
    return exp(-sum((x[:, None, j] - y[None, :, j]) ** 2 for j in range(x.shape[-1])) / 2)


def mixed(kernel: Kernel, x: Any, y: Any) -> Any:
    return kernel.share * linear(kernel, x, y) + (1 - kernel.share) * squared_exponential(kernel, x, y)


def product(kernel: Kernel, x: Any, y: Any) -> Any:
    return linear(kernel, x, y) * squared_exponential(kernel, x, y)


PARTS: dict[str, Callable[[Kernel, Any, Any], Any]] = {
    "linear": linear, "squared-exponential": squared_exponential, "sum": mixed, "product": product,
}  # fmt: skip
