"""J^(o), J^(e) and J^(p) of a pair of policies, by rollouts over the whole horizon in the hallucinated models.

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

from rhucrl.hallucination import hallucinate
from rhucrl.models.prediction import Model
from rhucrl.solvers.backup import slope
from rhucrl.solvers.critic import Critic
from rhucrl.solvers.policies import AdversaryPolicy, AgentPolicy
from rhucrl.solvers.value_iteration import pick

MEMBERS = 2  # rollouts of sampled ensemble members for J^(e)
STRAYS = 2  # adversaries that play a random candidate now and then, the deployed one's otherwise
STRAYING = 0.2
CONFIDENCE = 1.0  # a beta above this is there for exploration: J^(p) stays inside the calibrated uncertainty
PESSIMIST, NOBODY, OPTIMIST, MEMBER = range(4)
DEPLOYED, OWN, STRAY = -1, -2, -3

Deployed = Callable[[Array, Array], Array]
Lane = tuple[int, int]  # a rollout: what chooses its model, and its adversary (a number: that constant one)


class Bounds(NamedTuple):
    optimistic: Array
    expected: Array
    pessimistic: Array


def bounds(
    policy: AgentPolicy, response: AdversaryPolicy, deployed: Deployed, model: Model, key: PRNGKeyArray
) -> Bounds:
    """Estimates for (pi_t, pibar_t), where pibar_t is `deployed`."""
    constants = [(PESSIMIST, k) for k in range(len(policy.player.adversary))]
    others = [(OPTIMIST, DEPLOYED), (NOBODY, DEPLOYED), *[(MEMBER, DEPLOYED)] * MEMBERS]
    lanes = [*others, *attackers(policy), *constants]
    total = rollouts(policy, response, deployed, model, lanes, key)
    mean = total[1]
    optimistic, pessimistic = jnp.maximum(total[0], mean), jnp.minimum(total[len(others) :].min(), mean)
    return Bounds(optimistic, total[2 : len(others)].mean(), pessimistic)


def pessimistic(
    policy: AgentPolicy, response: AdversaryPolicy, deployed: Deployed, model: Model, key: PRNGKeyArray
) -> Array:
    """J^(p) of any policy in `model`, against the adversaries of this moment."""
    return rollouts(policy, response, deployed, model, attackers(policy), key).min()


def attackers(policy: AgentPolicy) -> list[Lane]:
    """The pessimistic lanes whose adversaries answer to the state."""
    strays = STRAYS if len(policy.player.adversary) > 1 and policy.player.game.scope == "step" else 0
    return [(PESSIMIST, DEPLOYED), (PESSIMIST, OWN), *[(PESSIMIST, STRAY)] * strays]


def rollouts(
    policy: AgentPolicy, response: AdversaryPolicy, deployed: Deployed, model: Model, lanes: list[Lane],
    key: PRNGKeyArray,
) -> Float[Array, " lanes"]:  # fmt: skip
    """The return of each lane."""
    player, n = policy.player, len(lanes)
    game, beta = player.game, player.numbers.beta
    own, constants = AdversaryPolicy(player), player.adversary
    chooser, who = jnp.array(lanes).T[..., None]
    reach = jnp.where(chooser == PESSIMIST, jnp.minimum(beta, CONFIDENCE), beta)

    def slopes(critic: Critic, obs: Array, adversary: Array) -> Array:
        if game.scope == "step":
            return slope(game, critic, obs, constants)[:, 0]
        return jax.vmap(lambda o, abar: slope(game, critic, o, abar[None])[0])(obs, adversary)

    def step(carry: tuple[Array, Array], drawn: tuple[Array, Array]):
        obs, alive = carry
        (straying, anywhere, luck, whose), noise = drawn
        action = policy(obs)
        adversary = jnp.where(who == OWN, own(obs, action), deployed(obs, action))
        stray = (who == STRAY) & (straying[:, None] < STRAYING)
        fixed = constants[jnp.where(stray[:, 0], pick(anywhere, len(constants)), jnp.maximum(who[:, 0], 0))]
        adversary = jnp.where(stray | (who >= 0), fixed, adversary)
        probability, outcomes = game.execute(action, adversary)
        outcome = (luck[:, None] > jnp.cumsum(probability)[:-1]).sum(-1)
        executed = jnp.take_along_axis(outcomes, outcome[None, :, None], 0)[0]
        prediction = model.predict(obs, executed, adversary)
        mean, std = model.member(obs, executed, adversary, pick(whose, model.members))
        mine, theirs = (slopes(critic, obs, adversary) for critic in (player.critic, response.player.critic))
        eta = jnp.where(chooser == OPTIMIST, jnp.sign(mine), jnp.where(chooser == PESSIMIST, -jnp.sign(theirs), 0.0))
        plausible = hallucinate(prediction, eta, reach, noise)
        following = game.project(jnp.where(chooser == MEMBER, mean + noise * std, plausible))
        reward = alive * game.reward(obs, executed, adversary, following)
        return (following, alive * (1 - game.terminated(following))), reward

    origin = jnp.tile(player.origin(), (n, 1))
    keys = jax.random.split(key)
    draws = jax.random.uniform(keys[0], (game.horizon, 4, n))
    noises = jax.random.normal(keys[1], (game.horizon, *origin.shape))
    return jax.lax.scan(step, (origin, jnp.ones(n)), (draws, noises))[1].sum(0)
