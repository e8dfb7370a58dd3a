"""Imagined rollouts of both players: the data that critics learn from, and what gradients flow through.

Axes are (lane, start): every start state is met by the adversaries of all lanes, which share their luck, so that what
differs between lanes is the adversaries' doing. Each imagined state goes through one member of the ensemble, another
one in every step: f^(e). Where there is an eta it goes through two, whose mean and distance stand for mu and sigma
(`eq:optimistic_transition`, `eq:pessimistic_transition`). An ensemble then costs no more than a network or two.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rhucrl.envs.game import chosen
from rhucrl.hallucination import hallucinate, sampled, sketched
from rhucrl.networks.policies import bang_bang
from rhucrl.options import ActorCritic
from rhucrl.solvers.actor_critic.problem import ProblemNetworks, Role, World
from rhucrl.solvers.look_ahead.value_iteration import pick

NETWORK, FIXED, NOBODY = 0.4, 0.5, 0.1  # shares of the rollouts that start states come from


class Opponents(NamedTuple):
    """Who plays against the agent in each lane: the network in some starts of lane 0, a rule where there is one for the
    lane, else an action that is held."""

    network: Bool[Array, " n"]
    held: Float[Array, "k n qbar"]
    rule: Float[Array, "k n qbar f"] | None = None
    ruled: Bool[Array, "k n"] | None = None

    @property
    def manner(self) -> Float[Array, "k n"]:
        """How an adversary goes on to the end of the episode, says the value behind a rollout: 0 as the network does,
        1 by holding its action, -1 by a rule."""
        held = jnp.ones(self.held.shape[:2])
        manner = held if self.ruled is None else jnp.where(self.ruled, -1.0, held)
        return manner.at[0].set(jnp.where(self.network, 0.0, manner[0]))


def lanes(world: World, role: Role, options: ActorCritic) -> int:
    if not role.contested or role.frozen:
        return 1
    return 1 + options.held + rule_lanes(world, options) + options.nobody


def rule_lanes(world: World, options: ActorCritic) -> int:
    """Lanes of rules, where there are any."""
    return options.rules if len(world.rules) else 0


def everybody(
    world: World, role: Role, options: ActorCritic, corners: Float[Array, "c qbar"], n: int, key: PRNGKeyArray
) -> Opponents:
    """For every start state the network, held extremes, rules, and nobody; for a response the network alone."""
    many = lanes(world, role, options)
    held = corners[pick(jax.random.uniform(key, (many, n)), corners.shape[0])]
    alone = (options.nobody and many > 1) or not role.contested
    held = held.at[-1].set(world.game.neutral) if alone else held
    opponents = Opponents(jnp.full(n, role.contested), held)
    if many == 1 or not rule_lanes(world, options):
        return opponents
    which = pick(jax.random.uniform(jax.random.fold_in(key, 1), (many, n)), len(world.rules))
    lane = jnp.arange(many)[:, None]
    among = (lane > options.held) & (lane <= options.held + options.rules)
    return opponents._replace(rule=world.rules[which], ruled=jnp.broadcast_to(among, (many, n)))


def somebody(
    world: World, role: Role, options: ActorCritic, corners: Float[Array, "c qbar"], n: int, key: PRNGKeyArray
) -> Opponents:
    """For every start state one of them."""
    if not role.contested or role.frozen:
        return everybody(world, role, options, corners, n, key)
    who, which, other = jax.random.uniform(key, (3, n))
    rules = rule_lanes(world, options)
    fixed = FIXED * jnp.array([options.held, rules]) / max(options.held + rules, 1)
    shares = jnp.array([NETWORK, *fixed, NOBODY * options.nobody])
    network, held, by_rule = jnp.cumsum(shares)[:3] / shares.sum()
    extremes = corners[pick(which, corners.shape[0])]
    opponents = Opponents(who < network, jnp.where((who < held)[:, None], extremes, world.game.neutral)[None])
    if not rules:
        return opponents
    rule = world.rules[pick(other, len(world.rules))]
    return opponents._replace(rule=rule[None], ruled=((who >= held) & (who < by_rule))[None])


class Imagined(NamedTuple):
    """Rollouts, a row per step: axes are (step, lane, start)."""

    obs: Float[Array, "t k n p"]
    action: Float[Array, "t k n q"]
    adversary: Float[Array, "t k n qbar"]
    reward: Float[Array, "t k n"]
    alive: Float[Array, "t k n"]
    """1 as long as nothing has ended before this step."""
    agent_density: Float[Array, "t k n"]
    adversary_density: Float[Array, "t n"]


class Ending(NamedTuple):
    """Where rollouts lead: the state behind the last step, who acts there, and whether it was reached alive."""

    obs: Float[Array, "*s k n p"]
    action: Float[Array, "*s k n q"]
    adversary: Float[Array, "*s k n qbar"]
    alive: Float[Array, "*s k n"]
    agent_density: Float[Array, "*s k n"]


def imagine(
    world: World, networks: ProblemNetworks, role: Role, starts: Float[Array, "n p"], opponents: Opponents, beta: Array,
    length: int, key: PRNGKeyArray,
) -> tuple[Imagined, Ending]:  # fmt: skip
    """`length` steps from every start state, hallucinated where the role has an eta.

    An adversary that acts once per episode is asked where episodes begin, and its answer is held.
    """
    game, model = world.game, world.model
    (lanes, n, qbar), p, q = opponents.held.shape, game.predicted_size, game.agent.size
    agent, adversary = world.agent(networks.agent), world.adversary(networks.adversary)
    keys = jax.random.split(key, 5)
    agent_noise = jax.random.normal(keys[0], (length + 1, 1, n, q)) * (not role.frozen)
    adversary_noise = jax.random.normal(keys[1], (length + 1, 1, n, qbar))
    omega = jax.random.normal(keys[2], (length, 1, n, p))
    luck = jax.random.uniform(keys[3], (length, 1, n))
    shifts = two_of(model.members, (length,), keys[4])
    lasting = game.scope == "episode"
    asked = role.contested and lasting
    once = adversary.sample(game.starts(keys[4], n)[None], adversary_noise[0]) if asked else None

    def opposed(obs: Array, noise: Array) -> tuple[Array, Array]:
        """The adversaries' actions, of which lane 0 may ask the network, and the density of what it says."""
        if not role.contested:
            return opponents.held, jnp.zeros(n)
        fixed = opponents.held
        if opponents.rule is not None and opponents.ruled is not None:
            ruled = bang_bang(opponents.rule, world.normaliser, game.adversary, obs)
            fixed = jnp.where(opponents.ruled[..., None], ruled, fixed)
        answer, density = adversary.sample(obs[:1], noise) if once is None else once
        first = jnp.where(opponents.network[:, None], answer, fixed[:1])
        return jnp.concatenate([first, fixed[1:]]), density[0]

    def follow(obs: Array, executed: Array, action: Array, adversary: Array, omega: Array, shifts: Array) -> Array:
        if role.sign == 0:
            return world.limits.clip(sampled(model.divided(obs, executed, adversary, shifts[0]), omega))
        prediction = sketched(model, obs, executed, adversary, shifts)
        eta = world.eta(networks.eta, obs, action, adversary)
        return world.limits.clip(hallucinate(prediction, eta, beta, omega))

    def step(carry: tuple[Array, Array], drawn: tuple[Array, ...]):
        (obs, alive), (agent_noise, adversary_noise, omega, luck, shifts) = carry, drawn
        action, agent_density = agent.sample(obs, agent_noise)
        adversary, adversary_density = opposed(obs, adversary_noise)
        executed = chosen(game.execute(action, adversary), luck)
        following = follow(obs, executed, action, adversary, omega, shifts)
        reward = game.reward(obs, executed, adversary, following)
        row = Imagined(obs, action, adversary, reward, alive, agent_density, adversary_density)
        return (following, alive * (1 - game.over(following))), row

    begin = jnp.broadcast_to(starts, (lanes, *starts.shape)), jnp.ones((lanes, n))
    (last, alive), rows = jax.lax.scan(step, begin, (agent_noise[:-1], adversary_noise[:-1], omega, luck, shifts))
    action, density = agent.sample(last, agent_noise[-1])
    return rows, Ending(last, action, opposed(last, adversary_noise[-1])[0], alive, density)


def two_of(n: int, shape: tuple[int, ...], key: PRNGKeyArray) -> Int[Array, "*b 2"]:
    """Two different numbers below n, drawn at random (of one there is only one)."""
    one, apart = jax.random.randint(key, (2, *shape), 0, jnp.array([n, max(n - 1, 1)]).reshape(2, *[1] * len(shape)))
    return jnp.stack([one, (one + 1 + apart) % n], -1)
