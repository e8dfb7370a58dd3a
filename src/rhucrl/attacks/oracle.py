"""The exact answer on the pendulum: dynamic programming over the true game on a (theta, omega) grid.

One backward recursion serves two questions. With all agent actions as candidates it is the value of the
game, max over agent of min over adversary (`eq:objective`): the oracle. With the actions of a fixed
policy it is that policy's worst case (`eq:performance` minimised over adversaries): the best response.

The next angle depends only on the angle and on the unclipped next velocity w, so each backward step first
tabulates V(theta_i + dt w_k, clip(w_k)) on a fine axis of w; every pair of actions is then one linear lookup.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rhucrl.attacks.rollouts import Keys, Policy, mean_return
from rhucrl.envs.game import JaxGame
from rhucrl.envs.pendulum import DT, MAX_SPEED, Pendulum, wrap
from rhucrl.solvers.look_ahead.candidates import agent_candidates, lattice

FINENESS = 5  # points of the fine velocity axis per point of the grid

Table = Float[Array, "n m"]


def grid_states(grid: int) -> Float[Array, "n m 2"]:
    """The grid: `grid` angles around the circle from -pi, `grid + 1` velocities over the closed range."""
    theta = -math.pi + 2 * math.pi * jnp.arange(grid) / grid
    omega = jnp.linspace(-MAX_SPEED, MAX_SPEED, grid + 1)
    return jnp.stack(jnp.meshgrid(theta, omega, indexing="ij"), -1)


def split(position: Array, cells: int) -> tuple[Int[Array, "*b"], Float[Array, "*b"]]:
    """The cell a position is in and how far it is through the cell."""
    cell = jnp.clip(jnp.floor(position), 0, cells - 1)
    return cell.astype(int), position - cell


def cubic(values: list[Array], t: Array) -> Array:
    """Keys' cubic convolution through four neighbours, limited to the range of the inner two.

    Without the limit a max-min recursion amplifies the overshoots; with linear weights alone it diffuses.
    """
    weights = (
        -0.5 * t**3 + t**2 - 0.5 * t,
        1.5 * t**3 - 2.5 * t**2 + 1,
        -1.5 * t**3 + 2 * t**2 + 0.5 * t,
        0.5 * t**3 - 0.5 * t**2,
    )
    smooth = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return jnp.clip(smooth, jnp.minimum(values[1], values[2]), jnp.maximum(values[1], values[2]))


def interpolate(table: Table, state: Float[Array, "*b 2"]) -> Float[Array, "*b"]:
    """The table between its grid points, around the circle."""
    n = table.shape[0]
    i, right = split((wrap(state[..., 0]) / math.pi + 1) / 2 * n, n)
    j, up = split((state[..., 1] / MAX_SPEED + 1) / 2 * n, n)

    def row(i: Array) -> Array:
        return cubic([table[i % n, jnp.clip(j + q, 0, n)] for q in range(-1, 3)], up)

    return cubic([row(i + q) for q in range(-1, 3)], right)


class FineAxis(NamedTuple):
    """Unclipped next velocities from `-edge` to `edge`: as far as any pair of actions can push."""

    edge: Float[Array, ""]
    points: int

    def values(self) -> Float[Array, " k"]:
        return jnp.linspace(-self.edge, self.edge, self.points)

    def ahead(self, table: Table) -> Float[Array, "n k"]:
        """V(theta_i + dt w_k, clip(w_k)) for every angle of the grid and every velocity of this axis."""
        n, w = table.shape[0], self.values()
        j, up = split((jnp.clip(w / MAX_SPEED, -1, 1) + 1) / 2 * n, n)
        below, above = 2 * table[:, :1] - table[:, 1:2], 2 * table[:, -1:] - table[:, -2:-1]
        padded = jnp.concatenate([below, table, above], 1)
        columns = cubic([padded[:, j + q] for q in range(4)], up)
        turn = DT * w / (2 * math.pi) * n
        shift, right = jnp.floor(turn).astype(int), turn - jnp.floor(turn)
        rows, k = jnp.arange(n)[:, None] + shift, jnp.arange(self.points)
        return cubic([columns[(rows + q) % n, k] for q in range(-1, 3)], right)

    def read(self, ahead: Float[Array, "n k"], w: Float[Array, "n m"]) -> Table:
        """The tabulated values at the velocities `w` of each angle."""
        n = ahead.shape[0]
        k, up = split((w / self.edge + 1) / 2 * (self.points - 1), self.points - 1)
        flat, at = ahead.reshape(-1), jnp.arange(n)[:, None] * self.points + k
        return flat[at] * (1 - up) + flat[at + 1] * up


def fine_axis(game: Pendulum, grid: int) -> FineAxis:
    """The fine axis of a game: its reach is the largest kick of all pairs of extreme actions."""
    side, extremes = jnp.array([math.pi / 2, 0.0]), jnp.stack([game.agent.low, game.agent.high])

    def kick(adversary: Array) -> Array:
        executed = game.execute(extremes, adversary).action
        return jnp.abs(game.velocity(side, executed, adversary)).max()

    reach = jax.vmap(kick)(adversary_candidates(game)).max()
    return FineAxis(MAX_SPEED + 1.01 * reach, FINENESS * grid + 1)


def adversary_candidates(game: JaxGame) -> Float[Array, "c qbar"]:
    """Nine actions over the adversary's box, its vertices among them."""
    return game.adversary.place(lattice(game.adversary.size, {1: 9, 2: 3}[game.adversary.size])[:, ::-1])


@eqx.filter_jit
def recursion(game: Pendulum, actions: Float[Array, "k ... q"], grid: int, keep: bool) -> tuple[Table, Array | None]:
    """V_h = max over `actions` of min over the adversary of r + V_{h-1}, from V_0 = 0 to the horizon.

    `actions` holds the agent's candidates at every grid point: all actions, or a policy's single one. With
    `keep` also the values that follow step t, for every t.
    """
    states, candidates, fine = grid_states(grid), adversary_candidates(game), fine_axis(game, grid)
    obs = game.observe(states)

    def back(table: Table, _: None) -> tuple[Table, Table | None]:
        ahead = fine.ahead(table)

        def outcome(executed: Array, adversary: Array) -> Table:
            gain = game.reward(obs, executed, adversary, obs)  # a function of the state before the step
            return gain + fine.read(ahead, game.velocity(states, executed, adversary))

        def expected(action: Array, adversary: Array) -> Table:
            execution = game.execute(action, adversary)
            values = [outcome(executed, adversary) for executed in execution.action]
            return jnp.einsum("k,knm->nm", execution.probability, jnp.stack(values))

        def worst(action: Array) -> Table:
            def least(low: Table, adversary: Array) -> tuple[Table, None]:
                return jnp.minimum(low, expected(action, adversary)), None

            return jax.lax.scan(least, jnp.full_like(table, jnp.inf), candidates)[0]

        def best(high: Table, action: Array) -> tuple[Table, None]:
            return jnp.maximum(high, worst(action)), None

        value = jax.lax.scan(best, jnp.full_like(table, -jnp.inf), actions)[0]
        return value, table if keep else None

    return jax.lax.scan(back, jnp.zeros(states.shape[:2]), length=game.horizon, reverse=True)


def one_step(game: Pendulum, table: Table, obs: Array, action: Array, adversary: Array) -> Float[Array, "*b"]:
    """r + V(next state) of a pair of actions, expected over what is executed."""
    execution, state = game.execute(action, adversary), game.state(obs)

    def outcome(executed: Array) -> Array:
        return game.reward(obs, executed, adversary, obs) + interpolate(table, game.step(state, executed, adversary))

    values = jnp.stack([outcome(executed) for executed in execution.action])
    return jnp.einsum("k,k...->...", execution.probability, values)


class GreedyAgent(eqx.Module):
    """The stationary policy that plays the best action against the worst next step, valued by a table."""

    game: Pendulum
    table: Table
    actions: Float[Array, "k q"]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        candidates = adversary_candidates(self.game)

        def worst(action: Array) -> Array:
            against = jax.vmap(lambda adversary: one_step(self.game, self.table, obs, action, adversary))
            return against(candidates).min(0)

        return self.actions[jax.vmap(worst)(self.actions).argmax(0)]


class GreedyAdversary(eqx.Module):
    """The adversary that plays the worst action against a known policy, valued by a table for each step."""

    game: Pendulum
    policy: Policy
    tables: Float[Array, "t n m"]

    def __call__(self, obs: Float[Array, "*b p"], time: Int[Array, ""]) -> Float[Array, "*b qbar"]:
        candidates, action = adversary_candidates(self.game), self.game.agent.clip(self.policy(obs))
        against = jax.vmap(lambda adversary: one_step(self.game, self.tables[time], obs, action, adversary))
        return candidates[against(candidates).argmin(0)]


class Straying(eqx.Module):
    """An adversary that follows a guide but plays a vertex of its box at random moments."""

    guide: GreedyAdversary
    key: PRNGKeyArray

    def __call__(self, obs: Array, time: Array) -> Array:
        moment, vertex = jax.random.split(jax.random.fold_in(self.key, time))
        rate = jax.random.uniform(self.key, maxval=0.2)  # each stray has a rate of its own
        box = self.guide.game.adversary
        sides = jnp.sign(jax.random.normal(vertex, (box.size,)))
        strays = jax.random.uniform(moment) < rate
        return jnp.where(strays, box.place(sides), self.guide(obs, time))


class Oracle(NamedTuple):
    """The solved game: its value at the start, a policy that realises it, and the value of every grid point."""

    value: float
    policy: GreedyAgent
    table: Table


def start_value(game: Pendulum, table: Table) -> float:
    return float(interpolate(table, game.reset(jax.random.key(0))))


def solve(game: Pendulum, grid: int = 400, agent_points: int = 9) -> Oracle:
    """The value of the game and the agent's max-min policy, by dynamic programming."""
    demand_steps(game, "solve")
    actions = agent_candidates(game.agent, agent_points)
    table, _ = recursion(game, actions[:, None, None], grid, False)
    return Oracle(start_value(game, table), GreedyAgent(game, table, actions), table)


@eqx.filter_jit
def actions_on_grid(game: Pendulum, policy: Policy, grid: int) -> Float[Array, "n m q"]:
    """The policy's action at every grid point, one angle at a time so that memory stays small."""
    return jax.lax.map(lambda obs: game.agent.clip(policy(obs)), game.observe(grid_states(grid)))


def best_response(game: Pendulum, policy: Policy, grid: int = 200) -> tuple[float, GreedyAdversary]:
    """The return of `policy` under the worst adversary, up to the grid's error, and that adversary.

    Where the policy jumps between grid points the bound can be far from what the adversary then achieves.
    """
    demand_steps(game, "best_response")
    table, tables = recursion(game, actions_on_grid(game, policy, grid)[None], grid, True)
    assert tables is not None
    return start_value(game, table), GreedyAdversary(game, policy, tables)


@eqx.filter_jit
def worst_stray(guide: GreedyAdversary, count: int, key: PRNGKeyArray, keys: Keys) -> Straying:
    """Of some strays, the one that leaves the guide's policy the least over the episodes of `keys`."""
    strays = jax.random.split(key, count)
    gains = jax.vmap(lambda stray: mean_return(guide.game, guide.policy, Straying(guide, stray), keys))(strays)
    return Straying(guide, strays[gains.argmin()])


def demand_steps(game: JaxGame, asker: str) -> None:
    if game.scope != "step":
        raise ValueError(
            f"{asker} needs an adversary that acts every step (scope 'step'), not scope {game.scope!r}: "
            "an adversary that is fixed for an episode is searched over its box by worst_case"
        )
