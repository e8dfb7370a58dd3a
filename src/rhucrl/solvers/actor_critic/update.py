"""Two-player actor-critic in the model: both problems of `eq:rhucrl` are one update.

Gradients flow along short rollouts through the critics behind them, the model, the reward and the policies; one
backward pass gives every player's gradient. Start states come from longer rollouts of the same players, which nothing
is differentiated through: what critics and policies learn from is where these players go. (The recipe without a second
player is that of Kubo et al. 2025, DHMBPO.)

A single adversary network is a local best response. Every start state is met by several adversaries: the network,
extremes of its box that are held, and nobody. Critics know which: what is held is held to the end. The agent improves
its return against the network and, with a weight that grows while it learns, against the worst of them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.networks.layers import Perceptron, towards
from rhucrl.options import ActorCritic
from rhucrl.replay import Replay
from rhucrl.solvers.actor_critic.imagination import (
    Ending,
    Imagined,
    Opponents,
    everybody,
    imagine,
    lanes,
    somebody,
    two_of,
)
from rhucrl.solvers.actor_critic.problem import Problem, ProblemNetworks, Role, World, adam
from rhucrl.solvers.base import SolverNumbers
from rhucrl.solvers.look_ahead.value_iteration import pick

STEEPEST = 1.0  # norm of a player's gradient: rollouts of an unstable system multiply it by thousands
ADVERSARY_ENTROPY = 0.01  # what entropy is worth to the adversary, in units of the critics
REFILL = 20  # updates between two fillings of the start states
KEPT = 10  # fillings that are kept


def behind(rows: Imagined, ending: Ending, trace: float) -> Ending:
    """Where returns of a rollout can end, one after the other: behind each step, or (a trace of 1) behind the last."""
    if trace == 1:
        return Ending(*(x[None] for x in ending))
    steps = (getattr(rows, name)[1:] for name in Ending._fields)
    return Ending(*(jnp.concatenate([x, last[None]]) for x, last in zip(steps, ending, strict=True)))


def value_ahead(
    world: World, rows: Imagined, later: Float[Array, "s k n"], bonus: Float[Array, "t k n"], trace: float
) -> Float[Array, "k n"]:
    """The lambda-return of a rollout: means of returns of 1, 2, ... steps, with the value `later` behind each.

    Rewards and values are discounted, and nothing counts after an end.
    """
    steps, ends = rows.reward.shape[0], jnp.arange(rows.reward.shape[0] + 1)[-len(later) :]
    share = jnp.where(ends == steps, 1.0, 1 - trace) * trace ** (ends - 1)
    worth = ((world.discount * trace) ** jnp.arange(steps))[:, None, None] * rows.alive * (rows.reward + bonus)
    return worth.sum(0) + jnp.tensordot(share * world.discount**ends, later, 1)


def loss(
    networks: ProblemNetworks, targets: Perceptron, world: World, role: Role, options: ActorCritic,
    starts: Float[Array, "n p"], opponents: Opponents, numbers: SolverNumbers, key: PRNGKeyArray,
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """One number whose gradient moves every network; that of a minimiser has the opposite sign."""
    frozen, keys = jax.lax.stop_gradient, jax.random.split(key)
    rows, ending = imagine(world, networks, role, starts, opponents, numbers.beta, options.model_steps, keys[0])
    # a temperature that is learned pays for the entropy above what is wanted: to live must neither cost nor pay
    learned = options.temperature is None
    wanted = numbers.entropy * world.game.agent.size if learned else 0.0
    heat = jnp.exp(networks.log_temperature) if learned else jnp.float32(options.temperature)
    temperature = jnp.where(role.frozen, 0.0, frozen(heat))
    there = behind(rows, ending, options.trace)
    bonus, later_bonus = (-temperature * (density + wanted) for density in (rows.agent_density, there.agent_density))

    two, manner = jax.tree.map(lambda w: w[two_of(options.critics, (), keys[1])], targets), opponents.manner
    least = world.clip(world.values(two, *there[:3], manner).min(0))
    target = value_ahead(world, rows, there.alive * (least + later_bonus), bonus.at[0].set(0.0), options.trace)
    first = frozen((rows.obs[0], rows.action[0], rows.adversary[0]))
    error = (world.values(networks.critics, *first, manner) - frozen(target)) / world.scale
    critic_loss = jnp.square(error).mean((-2, -1)).sum()

    mean = world.values(frozen(networks.critics), *there[:3], manner).mean(0)
    gained = value_ahead(world, rows, there.alive * (mean + later_bonus), bonus, options.trace)
    gain = gained[0].mean()
    if opponents.held.shape[0] > 1:
        gain = (gain + world.worst * gained.min(0).mean() + (1 - world.worst) * gained.mean()) / 2
    calm = ADVERSARY_ENTROPY * (opponents.network * rows.adversary_density[0]).mean()
    entropy = -rows.agent_density[0].mean()
    excess = heat * frozen(entropy - wanted) if learned and not role.frozen else 0.0
    metrics = {
        "critic_loss": critic_loss, "gain": gain, "entropy": entropy, "temperature_entropy": temperature,
        "value": target.mean(),
    }  # fmt: skip
    return critic_loss - gain / world.scale - calm + excess, metrics


def bounded(gradient: Any, sign: float | Array = 1.0) -> Any:
    squares = sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient))
    shrink = sign * jnp.minimum(1.0, STEEPEST * jax.lax.rsqrt(jnp.maximum(squares, 1e-12)))
    return jax.tree.map(lambda g: shrink * g, gradient)


def directed(gradient: ProblemNetworks, role: Role, awake: Array) -> ProblemNetworks:
    """Every player's gradient with its sign and its own bound; only critics learn before they are `awake`."""
    still = 0.0 if role.frozen else 1.0
    return gradient._replace(
        agent=bounded(gradient.agent, still * awake), adversary=bounded(gradient.adversary, -awake),
        eta=bounded(gradient.eta, (role.sign or 1) * awake), log_temperature=still * awake * gradient.log_temperature,
    )  # fmt: skip


def improve(
    world: World, problem: Problem, replay: Replay, corners: Float[Array, "c qbar"], role: Role, options: ActorCritic,
    numbers: SolverNumbers, key: PRNGKeyArray,
) -> tuple[Problem, dict[str, Array]]:  # fmt: skip
    """As many gradient steps as an episode has steps: `updates` times."""
    members, length = world.model.members, options.start_steps
    n, batch = (-(-size // members) * members for size in (options.batch // lanes(world, role, options), options.batch))
    refills = max(round(options.updates * world.game.horizon / REFILL), 1)
    room = batch * length

    def seen(n: int, key: PRNGKeyArray) -> Array:
        return replay.data.obs[pick(jax.random.uniform(key, (n,)), jnp.maximum(replay.size, 1))]

    def refill(problem: Problem, states: Array, i: Array, key: PRNGKeyArray) -> Array:
        """States on the way of both players, in place of the oldest ones; where a rollout has ended, real states."""
        keys = jax.random.split(key, 5)
        against, first = somebody(world, role, options, corners, batch, keys[0]), round(options.beginnings * batch)
        starts = jnp.concatenate([world.game.starts(keys[4], first), seen(batch - first, keys[1])])
        rows, _ = imagine(world, problem.networks, role, starts, against, numbers.beta, length, keys[2])
        reached = jnp.where(rows.alive[..., None] > 0, rows.obs, 0.0).reshape(room, -1)
        real = seen(room, keys[3])
        new = jnp.where(rows.alive.reshape(room, 1) > 0, reached, real)
        return jax.lax.dynamic_update_slice_in_dim(states, new, i % KEPT * room, 0)

    def update(problem: Problem, drawn: tuple[PRNGKeyArray, Array], states: Array, filled: Array):
        key, awake = drawn
        keys = jax.random.split(key, 3)
        starts = states[pick(jax.random.uniform(keys[0], (n,)), filled)]
        against = everybody(world, role, options, corners, n, keys[1])
        gradient, metrics = jax.grad(loss, has_aux=True)(
            problem.networks, problem.targets, world, role, options, starts, against, numbers, keys[2]
        )
        descent, optimiser = adam.update(directed(gradient, role, awake), problem.optimiser)
        networks = jax.tree.map(lambda w, d: w - numbers.learning_rate * d, problem.networks, descent)
        targets = towards(problem.targets, networks.critics, numbers.target_rate)
        averaged = towards(problem.averaged, networks.agent, numbers.average_rate)
        return Problem(networks, targets, averaged, optimiser), metrics

    def block(carry: tuple[Problem, Array], drawn: tuple[Array, PRNGKeyArray]):
        (problem, states), (i, key) = carry, drawn
        keys = jax.random.split(key)
        states = refill(problem, states, i, keys[0])
        awake = (i * REFILL + jnp.arange(REFILL) >= options.critics_first * refills * REFILL).astype(jnp.float32)
        filled = jnp.minimum(i + 1, KEPT) * room
        draws = jax.random.split(keys[1], REFILL), awake
        problem, metrics = jax.lax.scan(lambda c, drawn: update(c, drawn, states, filled), problem, draws)
        return (problem, states), jax.tree.map(jnp.mean, metrics)

    states = jnp.zeros((KEPT * room, world.game.predicted_size))
    (problem, _), metrics = jax.lax.scan(
        block, (problem, states), (jnp.arange(refills), jax.random.split(key, refills))
    )
    return problem, jax.tree.map(lambda x: x[-max(refills // 4, 1) :].mean(), metrics)
