"""J^(o), J^(e) and J^(p) of a pair of policies, by rollouts over the whole horizon in the hallucinated models
(`eq:optimistic_performance`, `eq:pessimistic_performance`).

J^(p) is only as good as its adversary, so it is the minimum over the deployed adversary, the one of the agent's own
problem, every constant one, and a few that stray from the deployed one at random. eta = 0 is always among the
plausible models that J^(o) and J^(p) choose from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.game import Game, chosen
from rhucrl.hallucination import hallucinate, sampled
from rhucrl.models.base import AbstractModel
from rhucrl.solvers.look_ahead.value_iteration import pick

MEMBERS = 2  # rollouts of sampled ensemble members for J^(e)
STRAYS = 2  # adversaries that play a random candidate now and then, the deployed one's otherwise
STRAYING = 0.2
CONFIDENCE = 1.0  # a beta above this is there for exploration: J^(p) stays inside the calibrated uncertainty
PESSIMIST, NOBODY, OPTIMIST, MEMBER = range(4)
DEPLOYED, OWN, STRAY = -1, -2, -3

Policy = Callable[[Float[Array, "n p"]], Float[Array, "n q"]]
Opponent = Callable[[Float[Array, "n p"], Float[Array, "n q"]], Float[Array, "n qbar"]]
Slope = Callable[[Array, Array, Array, Array], Float[Array, "n p"]]  # of (s, executed, abar, mu)
Lane = tuple[int, int]  # a rollout: what chooses its model, and its adversary (a number: that constant one)


class Contest(NamedTuple):
    """Who plays in which model, and where `up` leads the optimist's eta and `down` the pessimist's."""

    game: Game
    model: AbstractModel
    policy: Policy
    deployed: Opponent
    own: Opponent
    constants: Float[Array, "k qbar"]
    up: Slope
    down: Slope
    project: Callable[[Array], Array]
    beta: Array


class Bounds(NamedTuple):
    optimistic: Array
    expected: Array
    pessimistic: Array


def bounds(contest: Contest, key: PRNGKeyArray) -> Bounds:
    """Estimates for (pi_t, pibar_t), where pibar_t is the deployed adversary."""
    constants = [(PESSIMIST, k) for k in range(len(contest.constants))]
    others = [(OPTIMIST, DEPLOYED), (NOBODY, DEPLOYED), *[(MEMBER, DEPLOYED)] * MEMBERS]
    total = rollouts(contest, [*others, *attackers(contest), *constants], key)
    mean = total[1]
    optimistic, pessimistic = jnp.maximum(total[0], mean), jnp.minimum(total[len(others) :].min(), mean)
    return Bounds(optimistic, total[2 : len(others)].mean(), pessimistic)


def pessimistic(contest: Contest, key: PRNGKeyArray) -> Array:
    """J^(p) of any policy against the adversaries that answer to the state."""
    return rollouts(contest, attackers(contest), key).min()


def attackers(contest: Contest) -> list[Lane]:
    strays = STRAYS if len(contest.constants) > 1 and contest.game.scope == "step" else 0
    return [(PESSIMIST, DEPLOYED), (PESSIMIST, OWN), *[(PESSIMIST, STRAY)] * strays]


def rollouts(contest: Contest, lanes: list[Lane], key: PRNGKeyArray) -> Float[Array, " lanes"]:
    """The return of each lane."""
    game, model, constants, n = contest.game, contest.model, contest.constants, len(lanes)
    chooser, who = jnp.array(lanes).T[..., None]
    reach = jnp.where(chooser == PESSIMIST, jnp.minimum(contest.beta, CONFIDENCE), contest.beta)

    def step(carry: tuple[Array, Array], drawn: tuple[Array, Array]):
        obs, alive = carry
        (straying, anywhere, luck, whose), noise = drawn
        action = contest.policy(obs)
        adversary = jnp.where(who == OWN, contest.own(obs, action), contest.deployed(obs, action))
        stray = (who == STRAY) & (straying[:, None] < STRAYING)
        fixed = constants[jnp.where(stray[:, 0], pick(anywhere, len(constants)), jnp.maximum(who[:, 0], 0))]
        adversary = jnp.where(stray | (who >= 0), fixed, adversary)
        executed = chosen(game.execute(action, adversary), luck)
        prediction = model.predict(obs, executed, adversary)
        member = model.member(obs, executed, adversary, pick(whose, model.members))
        here = obs, executed, adversary, prediction.mean
        up, down = jnp.sign(contest.up(*here)), -jnp.sign(contest.down(*here))
        eta = jnp.where(chooser == OPTIMIST, up, jnp.where(chooser == PESSIMIST, down, 0.0))
        plausible = hallucinate(prediction, eta, reach, noise)
        following = contest.project(jnp.where(chooser == MEMBER, sampled(member, noise), plausible))
        reward = alive * game.reward(obs, executed, adversary, following)
        return (following, alive * (1 - game.over(following))), reward

    keys = jax.random.split(key)
    origin = jnp.tile(game.starts(jax.random.key(0), 1), (n, 1))
    draws = jax.random.uniform(keys[0], (game.horizon, 4, n))
    noises = jax.random.normal(keys[1], (game.horizon, *origin.shape))
    return jax.lax.scan(step, (origin, jnp.ones(n)), (draws, noises))[1].sum(0)
