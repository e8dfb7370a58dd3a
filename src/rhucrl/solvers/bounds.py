"""J^(o), J^(e) and J^(p) of a pair of policies, by rollouts over the whole horizon in the hallucinated models
(`eq:optimistic_performance`, `eq:pessimistic_performance`).

J^(p) is only as good as its adversary, so it is the minimum over the deployed adversary, the one of the agent's own
problem, some that follow rules (to hold an action is one), and a few that stray from the deployed one at random.
eta = 0 is always among the plausible models that J^(o) and J^(p) choose from. Every J is a mean over several starts and
their luck, which all adversaries share; minima are over such means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rhucrl.envs.game import Game, chosen
from rhucrl.hallucination import hallucinate, sampled
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.solvers.look_ahead.value_iteration import pick

MEMBERS = 2  # rollouts of sampled ensemble members for J^(e)
STRAYS = 2  # adversaries that play a random candidate now and then, the deployed one's otherwise
STRAYING = 0.2
CONFIDENCE = 1.0  # a beta above this is there for exploration: J^(p) stays inside the calibrated uncertainty
PESSIMIST, NOBODY, OPTIMIST, MEMBER = range(4)
DEPLOYED, OWN, STRAY = -1, -2, -3

Policy = Callable[[Float[Array, "*b p"]], Float[Array, "*b q"]]
Opponent = Callable[[Float[Array, "*b p"], Float[Array, "*b q"]], Float[Array, "*b qbar"]]
Eta = Callable[[Array, Array, Array, Array, Prediction], Float[Array, "*b p"]]
"""Of s, a, the executed action, abar and the prediction there."""
ByRule = Callable[[Int[Array, "*#b"], Float[Array, "*#b p"]], Float[Array, "*b qbar"]]
"""Of the numbers of rules, and of states."""
Lane = tuple[int, int]  # a rollout: what chooses its model, and its adversary (a number: that rule)


class Contest(NamedTuple):
    """Who plays in which model: the optimist's eta and the pessimist's."""

    game: Game
    model: AbstractModel
    policy: Policy
    deployed: Opponent
    own: Opponent
    rules: int
    """How many adversaries there are that follow a rule; to hold an action is one."""
    by_rule: ByRule
    optimist: Eta
    pessimist: Eta
    project: Callable[[Array], Array]
    beta: Array


def bounds(contest: Contest, n: int, key: PRNGKeyArray) -> dict[str, Array]:
    """Estimates for (pi_t, pibar_t), where pibar_t is the deployed adversary, from n starts; and standard errors."""
    others = [(OPTIMIST, DEPLOYED), (NOBODY, DEPLOYED), *[(MEMBER, DEPLOYED)] * MEMBERS]
    total = rollouts(contest, [*others, *attackers(contest)], n, key)
    optimist, nobody, *members = total[: len(others)]
    worst = total[len(others) :][total[len(others) :].mean(-1).argmin()]
    chosen_by = {
        "optimistic": jnp.where(optimist.mean() > nobody.mean(), optimist, nobody),
        "expected": jnp.stack(members).mean(0),
        "pessimistic": jnp.where(worst.mean() < nobody.mean(), worst, nobody),
    }
    metrics = {f"J_{name}": j.mean() for name, j in chosen_by.items()}
    if n > 1:
        metrics |= {f"J_{name}_error": j.std(ddof=1) / n**0.5 for name, j in chosen_by.items()}
    return metrics


def pessimistic(contest: Contest, n: int, key: PRNGKeyArray) -> Array:
    """J^(p) of any policy."""
    return rollouts(contest, attackers(contest), n, key).mean(-1).min()


def attackers(contest: Contest) -> list[Lane]:
    """Those that J^(p) is the minimum over."""
    strays = STRAYS if contest.rules > 1 and contest.game.scope == "step" else 0
    rules = [(PESSIMIST, k) for k in range(contest.rules)]
    return [(PESSIMIST, DEPLOYED), (PESSIMIST, OWN), *[(PESSIMIST, STRAY)] * strays, *rules]


def rollouts(contest: Contest, lanes: list[Lane], n: int, key: PRNGKeyArray) -> Float[Array, "lanes n"]:
    """The returns of each lane from n starts. An adversary that acts once per episode is asked where it begins."""
    game, model, count = contest.game, contest.model, len(lanes)
    chooser, who = (jnp.array(lanes)[:, i, None, None] for i in range(2))
    reach = jnp.where(chooser == PESSIMIST, jnp.minimum(contest.beta, CONFIDENCE), contest.beta)

    def answers(obs: Array, action: Array) -> Array:
        answer = jnp.where(who == OWN, contest.own(obs, action), contest.deployed(obs, action))
        if not contest.rules:
            return answer
        return jnp.where(who >= 0, contest.by_rule(jnp.maximum(who[..., 0], 0), obs), answer)

    def step(carry: tuple[Array, Array], drawn: tuple[Array, Array]):
        obs, alive = carry
        (straying, anywhere, luck, whose), noise = drawn
        action = contest.policy(obs)
        adversary = answers(obs, action) if once is None else once
        if contest.rules:
            stray = (who == STRAY) & (straying[..., None] < STRAYING)
            adversary = jnp.where(stray, contest.by_rule(pick(anywhere, contest.rules), obs), adversary)
        executed = chosen(game.execute(action, adversary), jnp.broadcast_to(luck, alive.shape))
        prediction = model.predict(obs, executed, adversary)
        member = model.member(obs, executed, adversary, jnp.broadcast_to(pick(whose, model.members), alive.shape))
        here = obs, action, executed, adversary, prediction
        optimist, pessimist = contest.optimist(*here), contest.pessimist(*here)
        eta = jnp.where(chooser == OPTIMIST, optimist, jnp.where(chooser == PESSIMIST, pessimist, 0.0))
        plausible = hallucinate(prediction, eta, reach, noise)
        following = contest.project(jnp.where(chooser == MEMBER, sampled(member, noise), plausible))
        reward = alive * game.reward(obs, executed, adversary, following)
        return (following, alive * (1 - game.over(following))), reward

    keys = jax.random.split(key, 3)
    starts = game.starts(keys[2], n)
    origin = jnp.broadcast_to(starts, (count, *starts.shape))
    once = answers(origin, contest.policy(origin)) if game.scope == "episode" else None
    draws = jax.random.uniform(keys[0], (game.horizon, 4, count, n))
    draws = draws.at[:, 2:].set(draws[:, 2:, :1])
    noises = jax.random.normal(keys[1], (game.horizon, *starts.shape))
    return jax.lax.scan(step, (origin, jnp.ones((count, n))), (draws, noises))[1].sum(0)
