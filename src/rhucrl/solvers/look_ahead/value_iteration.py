"""Fitted value iteration of a hallucinated game on a pool of model rollouts.

The model is asked once per episode: its predictions at every pair of candidates along short rollouts are kept,
and all gradient steps of the episode draw on that pool. Targets are the max-min lambda-returns of the critic's
own hallucinated problem, so that optimism and pessimism are carried past the model steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rhucrl.envs.game import Game
from rhucrl.hallucination import choose_eta, hallucinate
from rhucrl.models.base import AbstractModel
from rhucrl.networks.critics import Critic
from rhucrl.networks.layers import towards
from rhucrl.solvers.base import SolverNumbers
from rhucrl.solvers.look_ahead.backup import Considered, consider, features, look_ahead, settle, slope, stateless, unit

WANDER = 0.1  # share of the rollouts' steps that follow a random pair of candidates

Proposals = Callable[[Float[Array, "n p"]], Float[Array, "n a q"]]


class Values(NamedTuple):
    """A critic, its target, its long average (which acts: it is free of the gradient steps' noise), its optimiser."""

    critic: Critic
    target: Critic
    average: Critic
    optimiser: optax.OptState


class Pool(NamedTuple):
    """Short rollouts, trajectory first, and what every pair of candidates would do at their states."""

    obs: Float[Array, "n l p"]
    considered: Considered
    taken: Int[Array, "n l"]  # the pair that was played; -1 if the game ended with it


adam = optax.scale_by_adam()


def start(critic: Critic) -> Values:
    return Values(critic, critic, critic, adam.init(eqx.filter(critic, eqx.is_array)))


def rollouts(
    game: Game, model: AbstractModel, critic: Critic, starts: Float[Array, "n p"], proposals: Proposals,
    adversary: Float[Array, "k qbar"], sign: Array, numbers: SolverNumbers, length: int, key: PRNGKeyArray,
) -> Pool:  # fmt: skip
    """Rollouts of the hallucinated model under its own max-min play, wandering off now and then."""
    weights = stateless(game, critic, game.starts(key, 1)[0], adversary)
    keys = jax.random.split(key)
    draws = jax.random.uniform(keys[0], (4, length, starts.shape[0]))  # at once: random bits are slow to compile
    noises = jax.random.normal(keys[1], (length, *starts.shape))

    def step(obs: Array, drawn: tuple[Array, Array]):
        (stray, anywhere, lasting, luck), noise = drawn
        considered = consider(game, model, obs, proposals(obs), adversary)
        gradient = slope(game, critic, obs, adversary)
        q = look_ahead(game, critic, considered, adversary, gradient, sign, numbers, noise)
        a, k, _ = settle(game, q, weights)
        if game.scope == "episode":
            k = pick(lasting, adversary.shape[0])
        pairs = q.shape[-2] * q.shape[-1]
        taken = jnp.where(stray < WANDER, pick(anywhere, pairs), a * q.shape[-1] + k)
        outcome = (luck[:, None] > jnp.cumsum(considered.probability)[:-1]).sum(-1)
        outcome = outcome[None, :, None, None, None]
        chosen = jax.tree.map(lambda x: at_pair(jnp.take_along_axis(x, outcome, 0)[0], taken), considered.prediction)
        lasting = (taken % q.shape[-1] % gradient.shape[-2])[..., None, None]
        gradient = jnp.take_along_axis(gradient, lasting, -2)[..., 0, :]
        eta = choose_eta(unit(game), chosen, gradient, sign, numbers.beta)
        following = game.project(hallucinate(chosen, eta, numbers.beta, noise))
        return following, (obs, considered, jnp.where(game.over(following), -1, taken))

    _, (obs, considered, taken) = jax.lax.scan(step, starts, (draws.swapaxes(0, 1), noises))
    # Scanned axes are (l, o, n, ...); a pool is drawn from by trajectory, so (n, l, o, ...).
    prediction, reward = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), (considered.prediction, considered.reward))
    return Pool(obs.swapaxes(0, 1), Considered(prediction, reward, considered.probability[0]), taken.T)


def pick(uniform: Array, n: int | Array) -> Int[Array, "*b"]:
    """One of n things for every uniform number."""
    return jnp.minimum((uniform * n).astype(int), n - 1)


def at_pair(x: Float[Array, "*b a k p"], pair: Int[Array, "*b"]) -> Float[Array, "*b p"]:
    flat = x.reshape(*pair.shape, -1, x.shape[-1])
    return jnp.take_along_axis(flat, pair[..., None, None], -2)[..., 0, :]


def rows(pool: Pool, index: Int[Array, " batch"]) -> tuple[Array, Considered, Array]:
    """Trajectories of the pool, with the outcomes' axis in front again."""
    rows = (pool.considered.prediction, pool.considered.reward)
    prediction, reward = jax.tree.map(lambda x: jnp.moveaxis(x[index], 2, 0), rows)
    return pool.obs[index], Considered(prediction, reward, pool.considered.probability), pool.taken[index]


def returns(
    q: Float[Array, "n l a k"], reward: Float[Array, "n l a k"], taken: Int[Array, "n l"],
    best: tuple[Array, Array, Array], numbers: SolverNumbers,
) -> Float[Array, "n l m"]:  # fmt: skip
    """Watkins's lambda-returns of the game: a trace goes on while the step taken is the one max-min play takes."""
    a, k, goal = best
    if goal.shape[-1] > 1:
        return goal
    pair = a * q.shape[-1] + k
    earned = jnp.take_along_axis(reward.reshape(*pair.shape, -1), pair[..., None], -1)[..., 0]
    trace = numbers.trace * (pair == taken)

    def back(later: Array, x: tuple[Array, Array, Array]):
        earned, goal, trace = x
        g = (1 - trace) * goal + trace * (earned + numbers.discount * later)
        return g, g

    steps = (earned.T, goal[..., 0].T, trace.T)
    last = steps[1][-1]
    _, g = jax.lax.scan(back, last, jax.tree.map(lambda x: x[:-1], steps), reverse=True)
    return jnp.concatenate([g, last[None]]).T[..., None]


def improve(
    game: Game, values: Values, pool: Pool, adversary: Float[Array, "k qbar"], sign: Array, numbers: SolverNumbers,
    batch: int, updates: int, key: PRNGKeyArray,
) -> tuple[Values, Array]:  # fmt: skip
    """`updates` gradient steps towards the max-min returns; also the mean squared error, in critic units."""
    low, high = game.reward_range
    lasting = adversary[: 1 if game.scope == "step" else None]
    origin = game.starts(key, 1)[0]
    keys = jax.random.split(key)
    batches = jax.random.randint(keys[0], (updates, batch), 0, pool.obs.shape[0])
    noises = jax.random.normal(keys[1], (updates, batch, *pool.obs.shape[1:]))

    def update(values: Values, drawn: tuple[Array, Array]):
        index, noise = drawn
        obs, considered, taken = rows(pool, index)
        gradient = slope(game, values.target, obs, adversary)
        q = look_ahead(game, values.target, considered, adversary, gradient, sign, numbers, noise)
        best = settle(game, q, stateless(game, values.target, origin, adversary))
        reward = jnp.tensordot(considered.probability, considered.reward, 1)
        goal = returns(q, reward, taken, best, numbers)
        goal = jnp.clip(goal, low * game.horizon, high * game.horizon) / unit(game)
        x = features(game, obs[..., None, :], lasting)

        error, step = jax.value_and_grad(lambda critic: jnp.square(critic(x) - goal).mean())(values.critic)
        direction, state = adam.update(step, values.optimiser)
        critic = jax.tree.map(lambda w, d: w - numbers.learning_rate * d, values.critic, direction)
        target = towards(values.target, critic, numbers.target_rate)
        average = towards(values.average, critic, numbers.average_rate)
        return Values(critic, target, average, state), error

    values, errors = jax.lax.scan(update, values, (batches, noises))
    return values, errors.mean()
