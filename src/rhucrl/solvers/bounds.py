"""J^(o), J^(e) and J^(p) of a pair of policies, by rollouts over the whole horizon in the hallucinated models.

J^(p) is only as good as its adversary, so it is the minimum over the deployed adversary, the one of the agent's own
problem and every constant one. eta = 0 is always among the plausible models that J^(o) and J^(p) choose from.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from rhucrl.hallucination import hallucinate
from rhucrl.solvers.backup import eta_direction
from rhucrl.solvers.policies import AdversaryPolicy, AgentPolicy

REPEATS = 2  # rollouts per estimate: the noise of the model is sampled
MEMBERS = 5  # rollouts of sampled ensemble members for J^(e)


class Bounds(NamedTuple):
    optimistic: Array
    expected: Array
    pessimistic: Array


def bounds(policy: AgentPolicy, response: AdversaryPolicy, deployed: Array, key: PRNGKeyArray) -> Bounds:
    """`deployed` says who plays: 0 the response, 1 the adversary of the agent's own problem, 2 nobody."""
    player = policy.player
    game, model, beta = player.game, player.model, player.numbers.beta
    own = AdversaryPolicy(player)
    constants = player.adversary
    # A lane is a rollout: the sign of its eta (2: a sampled member instead) and its adversary (2 + i: constant i).
    signs = [1] * REPEATS + [0] + [2] * MEMBERS + [-1] * (2 * REPEATS) + [-1] * len(constants)
    sign = jnp.array(signs)
    who = jnp.concatenate([
        jnp.full(REPEATS + 1 + MEMBERS + REPEATS, 1, int) * deployed, jnp.full(REPEATS, 1), 2 + jnp.arange(len(constants))
    ])  # fmt: skip
    lanes = sign.shape[0]

    def step(obs: Array, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        action = policy(obs)
        fixed = constants[jnp.maximum(who - 2, 0)]
        adversary = jnp.where((who == 0)[:, None], response(obs, action), own(obs, action))
        adversary = jnp.where((who >= 2)[:, None], fixed, adversary)
        probability, outcomes = game.execute(action, adversary)
        outcome = jax.random.categorical(keys[0], jnp.log(probability), shape=(lanes,))
        executed = jnp.take_along_axis(outcomes, outcome[None, :, None], 0)[0]
        prediction = model.predict(obs, executed, adversary)
        mean, std = model.member(obs, executed, adversary, jax.random.randint(keys[1], (lanes,), 0, MEMBERS))
        noise = jax.random.normal(keys[2], obs.shape)
        up = eta_direction(game, player.critic, obs, constants)[:, 0]
        down = -eta_direction(game, response.player.critic, obs, constants)[:, 0]
        eta = jnp.where((sign == 1)[:, None], up, jnp.where((sign == -1)[:, None], down, 0.0))
        following = jnp.where((sign == 2)[:, None], mean + noise * std, hallucinate(prediction, eta, beta, noise))
        following = game.project(following)
        return following, game.reward(obs, executed, adversary, following)

    origin = jnp.tile(player.origin(), (lanes, 1))
    _, rewards = jax.lax.scan(step, origin, jax.random.split(key, game.horizon))
    optimistic, mean, expected, pessimistic, rest = jnp.split(
        rewards.sum(0), [REPEATS, REPEATS + 1, REPEATS + 1 + MEMBERS, 2 * REPEATS + 1 + MEMBERS]
    )
    others, constant = rest[:REPEATS], rest[REPEATS:]
    low = jnp.minimum(pessimistic.mean(), others.mean())
    low = jnp.minimum(low, jnp.minimum(constant.min(), mean[0]))
    return Bounds(jnp.maximum(optimistic.mean(), mean[0]), expected.mean(), low)
