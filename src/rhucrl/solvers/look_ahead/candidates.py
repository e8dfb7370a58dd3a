"""Finite sets of actions over which the game is solved exactly at every state."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rhucrl.envs.game import Box, Game


def lattice(size: int, points: int) -> Float[Array, "n size"]:
    """A regular lattice in [-1, 1]^size, its vertices included."""
    axis = np.linspace(-1, 1, points) if points > 1 else np.zeros(1)
    return jnp.array(list(itertools.product(axis, repeat=size)), jnp.float32)


def vertices_and_centre(size: int) -> Float[Array, "n size"]:
    return jnp.concatenate([lattice(size, 2), jnp.zeros((1, size))])


def agent_candidates(box: Box, points: int) -> Float[Array, "n q"]:
    return box.place(lattice(box.size, points))


def adversary_candidates(game: Game, opponent: bool) -> Float[Array, "n qbar"]:
    """The adversary's choices: a singleton (`opponent=False`) makes RH-UCRL the H-UCRL algorithm.

    Extremes are nearly always the worst that a step can bring; a value for a whole episode may be worst inside.
    """
    box = game.adversary
    if not opponent:
        return game.neutral[None]
    if game.scope == "step":
        return box.place(lattice(box.size, 3 if box.size == 1 else 2))
    return box.place(lattice(1, 5) if box.size == 1 else vertices_and_centre(box.size))
