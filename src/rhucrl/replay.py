"""All transitions, each with its fate in model learning: bootstrap weights, or a place in the validation set."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

VALIDATION = 0.1
JUDGES = 2048  # held-out transitions that a fit is judged by, at most
POISSON = np.exp(-1) * np.cumsum([1 / math.factorial(k) for k in range(8)])  # Poisson(1)'s distribution function


class Transitions(NamedTuple):
    """What was observed: (s, executed action, adversary's action) and the next s."""

    obs: Float[Array, "n p"]
    executed: Float[Array, "n q"]
    adversary: Float[Array, "n qbar"]
    following: Float[Array, "n p"]


class Replay(NamedTuple):
    """A store of fixed capacity, filled from the front."""

    data: Transitions
    weight: Float[Array, "capacity heads"]
    held_out: Float[Array, " capacity"]
    size: Int[Array, ""]

    @property
    def capacity(self) -> int:
        return self.held_out.shape[0]

    @property
    def filled(self) -> Float[Array, " capacity"]:
        return (jnp.arange(self.capacity) < self.size).astype(jnp.float32)


def empty(capacity: int, sizes: tuple[int, int, int], heads: int) -> Replay:
    p, q, qbar = sizes
    data = Transitions(*(jnp.zeros((capacity, n)) for n in (p, q, qbar, p)))
    return Replay(data, jnp.zeros((capacity, heads)), jnp.zeros(capacity), jnp.int32(0))


def add(replay: Replay, new: Transitions, count: Int[Array, ""], key: PRNGKeyArray) -> Replay:
    """Append `count` transitions; each one's split and its Poisson(1) weight per head are decided here, once."""
    keys = jax.random.split(key)
    n, heads = new.obs.shape[0], replay.weight.shape[1]
    held_out = (jax.random.uniform(keys[0], (n,)) < VALIDATION).astype(jnp.float32)
    uniform = jax.random.uniform(keys[1], (n, heads, 1))
    weight = (uniform > POISSON).sum(-1).astype(jnp.float32) * (1 - held_out[:, None])

    def put(old: Array, rows: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, rows, replay.size, 0)

    data = jax.tree.map(put, replay.data, new)
    return Replay(data, put(replay.weight, weight), put(replay.held_out, held_out), replay.size + count)


def validation(replay: Replay) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """Where rows are that are held out, and 1 for each that there is, else 0.

    There is room for twice as many as are expected, up to JUDGES; of more, some are chosen evenly over time.
    """
    held_out = replay.held_out * replay.filled
    room = round(2 * VALIDATION * replay.capacity) + 64
    where, total = jnp.flatnonzero(held_out, size=room, fill_value=0), held_out.sum().astype(int)
    seat = jnp.arange(min(room, JUDGES))
    index = where[jnp.where(total > len(seat), seat * total // len(seat), seat)]
    return index, (seat < total).astype(jnp.float32)


def bootstrap(replay: Replay) -> tuple[Int[Array, "heads n"], Int[Array, " heads"]]:
    """Every head's bootstrap sample: indices of transitions, each as often as its weight says; and how many."""
    room = replay.capacity + replay.capacity // 4 + 64  # nine tenths are expected
    again = lambda times: jnp.repeat(jnp.arange(replay.capacity), times, total_repeat_length=room)  # noqa: E731
    weight = (replay.weight * replay.filled[:, None]).astype(int)
    return jax.vmap(again, 1)(weight), jnp.clip(weight.sum(0), 1, room)


def draw(replay: Replay, n: int, key: PRNGKeyArray) -> Int[Array, " n"]:
    """Indices of stored transitions, uniform with replacement."""
    return jax.random.randint(key, (n,), 0, jnp.maximum(replay.size, 1))


def statistics(rows: Float[Array, "capacity d"], filled: Float[Array, " capacity"]) -> tuple[Array, Array]:
    """Mean and standard deviation of all stored rows; a constant column has standard deviation 1."""
    total = jnp.maximum(filled.sum(), 1)
    mean = filled @ rows / total
    std = jnp.sqrt(filled @ jnp.square(rows - mean) / total)
    return mean, jnp.where(std > 1e-6, std, 1.0)
