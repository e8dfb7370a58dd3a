"""The worst sequence against a fixed policy: a search forward in the true game, where every episode is the same.

Of the states that the adversary can reach in as many steps, those in one cell of a fine grid have nearly the same
future: only the one that has cost the policy most goes on. Every path is one that the policy really takes, so that
nothing is interpolated, also where a policy jumps; and the finer the cells, the less is lost by giving up the others.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rhucrl.envs.game import JaxGame
from rhucrl.solvers.look_ahead.candidates import lattice

PRIMES = (73856093, 19349663, 83492791, 49979687)
ACTIONS = 81  # of the adversary, about: extremes are not the worst where a policy jumps, timing is
ROOM = 18  # states that may go on, per square of `cells`
CHUNK = 256  # states at which the policy is asked at once: a policy that looks ahead needs memory
TABLE = 1 << 20  # places for cells: two cells in one place are taken for one


def cell(game: JaxGame, state: Array, cells: int) -> Int[Array, "*b"]:
    """The place of a state's cell, of which there are `cells` along the scale of an observation's entry."""
    corner = jnp.floor(game.observe(state) / game.scale * cells).astype(jnp.int32)
    mixed = sum(corner[..., i] * PRIMES[i % len(PRIMES)] for i in range(corner.shape[-1]))
    return jnp.abs(mixed ^ (mixed >> 13)) % TABLE


@eqx.filter_jit
def worst_sequence(
    game: JaxGame, policy: Any, cells: int
) -> tuple[Float[Array, ""], Float[Array, "h qbar"], Int[Array, ""]]:
    """The return, the adversary's actions in [-1, 1], and the most cells that were reached at once.

    Where more cells are reached than there is room for, some of them are given up, by chance: then the return is still
    one that the policy gets, but finer cells are no longer better ones.
    """
    room = -(-ROOM * cells**2 // CHUNK) * CHUNK
    units = lattice(game.adversary.size, max(2, int(ACTIONS ** (1 / game.adversary.size) + 1e-6)))
    actions, choices = game.adversary.place(units), units.shape[0]
    first = game.reset(jax.random.key(0))

    def asked(states: Array, count: Array) -> Float[Array, "room q"]:
        """The policy's actions at the first `count` states."""

        def some(i: Array, found: Array) -> Array:
            here = jax.lax.dynamic_slice_in_dim(states, i * CHUNK, CHUNK)
            action = game.agent.clip(policy(game.observe(here)))
            return jax.lax.dynamic_update_slice_in_dim(found, action, i * CHUNK, 0)

        return jax.lax.fori_loop(0, -(-count // CHUNK), some, jnp.zeros((room, game.agent.size)))

    def step(carry: tuple[Array, Array, Array], time: Array):
        states, earned, over = carry
        agent = asked(states, jnp.isfinite(earned).sum())[:, None]
        agent, adversary = (jnp.broadcast_to(x, (room, choices, x.shape[-1])) for x in (agent, actions))
        executed = game.execute(agent, adversary).action[0]
        before = jnp.broadcast_to(states[:, None], (room, choices, *first.shape))
        after = game.step(before, executed, adversary)
        reward = game.reward(game.observe(before), executed, adversary, game.observe(after))
        total = (earned[:, None] + jnp.where(over[:, None], 0.0, reward)).ravel()
        ended = (over[:, None] | game.terminated(game.observe(after))).ravel()
        after, order = after.reshape(-1, *first.shape), jnp.arange(room * choices)
        place = jnp.where(ended, 0, cell(game, after, cells))
        least = jnp.full(TABLE, jnp.inf).at[place].min(total)
        chosen = jnp.where((total == least[place]) & jnp.isfinite(total), order, -1)
        chosen = jnp.full(TABLE, -1).at[place].max(chosen)[place] == order
        shift = jax.random.randint(jax.random.fold_in(jax.random.key(1), time), (), 0, room * choices)
        found = jnp.flatnonzero(jnp.roll(chosen, shift), size=room, fill_value=-1)
        kept = jnp.where(found < 0, 0, (found - shift) % (room * choices))
        earned = jnp.where(found < 0, jnp.inf, total[kept])
        return (after[kept], earned, ended[kept]), (kept, chosen.sum())

    begin = jnp.broadcast_to(first, (room, *first.shape)), jnp.full(room, jnp.inf).at[0].set(0.0)
    start = *begin, jnp.zeros(room, bool)
    (_, earned, _), (steps, reached) = jax.lax.scan(step, start, jnp.arange(game.horizon))
    back = lambda at, kept: (kept[at] // choices, kept[at] % choices)  # noqa: E731
    _, choice = jax.lax.scan(back, earned.argmin(), steps, reverse=True)
    return earned.min(), units[choice], reached.max()
