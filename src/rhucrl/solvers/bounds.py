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
from jaxtyping import Array, PRNGKeyArray

from rhucrl.hallucination import hallucinate
from rhucrl.solvers.backup import slope
from rhucrl.solvers.critic import Critic
from rhucrl.solvers.policies import AdversaryPolicy, AgentPolicy

REPEATS = 1  # rollouts per estimate: the noise of the model is sampled
MEMBERS = 3  # rollouts of sampled ensemble members for J^(e)
STRAYS = 4  # adversaries that play a random candidate now and then, the deployed one's otherwise
STRAYING = 0.2
PESSIMIST, NOBODY, OPTIMIST, MEMBER = range(4)
DEPLOYED, OWN, STRAY = -1, -2, -3


class Bounds(NamedTuple):
    optimistic: Array
    expected: Array
    pessimistic: Array


def bounds(
    policy: AgentPolicy, response: AdversaryPolicy, deployed: Callable[[Array, Array], Array], key: PRNGKeyArray
) -> Bounds:
    """Estimates for (pi_t, pibar_t), where pibar_t is `deployed`."""
    player = policy.player
    game, model, beta = player.game, player.model, player.numbers.beta
    own, constants = AdversaryPolicy(player), player.adversary
    # A lane is a rollout: what chooses its model, and its adversary (a number: that constant one).
    lanes = (
        [(OPTIMIST, DEPLOYED)] * REPEATS + [(NOBODY, DEPLOYED)] + [(MEMBER, DEPLOYED)] * MEMBERS
        + [(PESSIMIST, DEPLOYED)] * REPEATS + [(PESSIMIST, OWN)] * REPEATS
        + [(PESSIMIST, STRAY - i) for i in range(STRAYS if len(constants) > 1 and game.scope == "step" else 0)]
        + [(PESSIMIST, k) for k in range(len(constants))]
    )  # fmt: skip
    chooser, who = jnp.array(lanes).T[..., None]

    def slopes(critic: Critic, obs: Array, adversary: Array) -> Array:
        if game.scope == "step":
            return slope(game, critic, obs, constants)[:, 0]
        return jax.vmap(lambda o, abar: slope(game, critic, o, abar[None])[0])(obs, adversary)

    def step(carry: tuple[Array, Array], key: PRNGKeyArray):
        obs, alive = carry
        keys = jax.random.split(key, 5)
        action = policy(obs)
        adversary = jnp.where(who == OWN, own(obs, action), deployed(obs, action))
        stray = (who <= STRAY) & (jax.random.uniform(keys[3], who.shape) < STRAYING)
        anything = jax.random.randint(keys[4], who.shape, 0, len(constants))
        fixed = constants[jnp.where(stray, anything, jnp.maximum(who, 0))[:, 0]]
        adversary = jnp.where(stray | (who >= 0), fixed, adversary)
        probability, outcomes = game.execute(action, adversary)
        outcome = jax.random.categorical(keys[0], jnp.log(probability), shape=(len(lanes),))
        executed = jnp.take_along_axis(outcomes, outcome[None, :, None], 0)[0]
        prediction = model.predict(obs, executed, adversary)
        mean, std = model.member(obs, executed, adversary, jax.random.randint(keys[1], (len(lanes),), 0, model.members))
        noise = jax.random.normal(keys[2], obs.shape)
        mine, theirs = (slopes(critic, obs, adversary) for critic in (player.critic, response.player.critic))
        eta = jnp.where(chooser == OPTIMIST, jnp.sign(mine), jnp.where(chooser == PESSIMIST, -jnp.sign(theirs), 0.0))
        plausible = hallucinate(prediction, eta, beta, noise)
        following = game.project(jnp.where(chooser == MEMBER, mean + noise * std, plausible))
        reward = alive * game.reward(obs, executed, adversary, following)
        return (following, alive * (1 - game.terminated(following))), reward

    origin = jnp.tile(player.origin(), (len(lanes), 1))
    _, rewards = jax.lax.scan(step, (origin, jnp.ones(len(lanes))), jax.random.split(key, game.horizon))
    total = rewards.sum(0)

    def mean_of(lane: tuple[int, int]) -> Array:
        return jnp.stack([total[i] for i, other in enumerate(lanes) if other == lane]).mean()

    mean = mean_of((NOBODY, DEPLOYED))
    pessimistic = [mean] + [mean_of(lane) for lane in dict.fromkeys(lanes) if lane[0] == PESSIMIST]
    optimistic = jnp.maximum(mean_of((OPTIMIST, DEPLOYED)), mean)
    return Bounds(optimistic, mean_of((MEMBER, DEPLOYED)), jnp.stack(pessimistic).min())
