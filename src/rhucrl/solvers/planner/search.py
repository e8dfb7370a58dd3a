"""Robust planning: hallucinated dynamics are an optimal-control problem, solved anew at every step.

A cross-entropy search over open-loop plans in two phases. First the agent's plans (with those of eta^(o)) are refitted
to the ones with the best worst case over the adversary's plans, and the adversary's to the worst for them; then the
agent's best plans stay, and an answer to them (with eta^(p)) is refitted. The plans of one step, moved on, are where
the search of the next step begins, and the former answer is among what the agent's next plans have to hold against.

An agent that plans anew is not bound by its plan. So a plan has gains beside its actions: in the model the agent reacts
to how far a rival has driven it from where it would be against the mean rival, and long plans do not look hopeless. And
the answer is to its best few plans alike: an answer to a single one exploits what will be mended a step later, and does
the agent little harm. Noise that is smooth in time, and so large that most actions of the first samples are extremes,
finds plans that the usual white noise misses (smooth noise: Pinneri et al. 2020).

Where the adversary chooses once per episode, the agent hedges over what it may have chosen, and what follows its
actions tells it which: the returns of a plan are weighed by how well each choice has predicted what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rhucrl.envs.game import Box, Game, chosen
from rhucrl.hallucination import hallucinate, sampled
from rhucrl.models.base import AbstractModel
from rhucrl.networks.policies import AbstractAdversary, AbstractPolicy
from rhucrl.solvers.look_ahead.candidates import lattice, vertices_and_centre
from rhucrl.solvers.look_ahead.value_iteration import pick

RIVALS = 10  # adversary's plans that each plan of the agent is tried against
PLANS = 10  # agent's plans that each answer is tried against
BOLD = 2.5  # first standard deviation of the agent's actions,
WARY = 1.0  # of rivals and gains,
CALM = 0.6  # of answers and etas
GAIN = 3.0  # the largest, in half-widths of an action per unit of an observation
SMOOTHNESS = 0.8  # correlation of the noise from step to step
EMPHASIS = 1.4  # on the noise of the first step, the one that will be played
FLOOR = 0.02  # of the standard deviations
GRAIN = 0.01  # of an observation's scale: choices whose predictions differ less are told apart by many steps only
COLD = 3  # times as many rounds where there is no plan to begin with

Value = Callable[[Float[Array, "*b p"]], Float[Array, "*b"]]


class Size(NamedTuple):
    """How much is tried: steps of a plan, rollouts of a round, the share of them that a round keeps, rounds."""

    horizon: int = 60
    samples: int = 300
    elite: float = 0.2
    rounds: int = 5


class PlanDistribution(NamedTuple):
    """A distribution over plans in [-1, 1], and the best one so far."""

    mean: Float[Array, "h d"]
    std: Float[Array, "h d"]
    best: Float[Array, "h d"]


class Thought(NamedTuple):
    """What a planner remembers of a step: its plan, the rival's, its best plans (no etas), and the answer to them.

    And what it saw, and how likely each choice for an episode has made what it has seen so far.
    """

    time: Int[Array, ""]
    seen: Float[Array, " p"]
    evidence: Float[Array, " k"]
    agent: Float[Array, "h w"]
    rival: Float[Array, "h r"]
    plans: Float[Array, "m h qg"]
    answer: Float[Array, "h s"]


class Search(NamedTuple):
    """A search under way; `plans` are the agent's best ones, without etas."""

    time: Int[Array, ""]
    seen: Float[Array, " p"]
    evidence: Float[Array, " k"]
    agent: PlanDistribution
    rival: PlanDistribution
    answer: PlanDistribution
    plans: Float[Array, "m h qg"]


class Planning(AbstractPolicy):
    """The agent that plans: a policy with a memory, or without it a batched function of observations.

    `agent_eta` and `response_eta` are the entries of the algorithm's row. `value` is added at the end of a plan.
    """

    game: Game
    model: AbstractModel
    beta: Float[Array, ""]
    discount: Float[Array, ""]
    seed: Int[Array, ""]
    limits: Box | None = None
    value: Value | None = None
    size: Size = eqx.field(static=True, default=Size())
    agent_eta: int = eqx.field(static=True, default=1)
    response_eta: int = eqx.field(static=True, default=-1)
    opponent: bool = eqx.field(static=True, default=True)

    def fresh(self) -> Thought:
        h, p, q, qbar = self.size.horizon, self.game.predicted_size, self.game.agent.size, self.game.adversary.size
        agent = jnp.zeros((h, q + self.feedback + p * abs(self.agent_eta)))
        answer = jnp.zeros((h, qbar + p * abs(self.response_eta)))
        plans = jnp.zeros((PLANS, h, q + self.feedback))
        seen, evidence = jnp.zeros(self.game.observation.size), jnp.zeros(len(self.choices))
        return Thought(jnp.int32(0), seen, evidence, agent, jnp.zeros((h, qbar)), plans, answer)

    @property
    def choices(self) -> Float[Array, "k qbar"]:
        """What an adversary may have chosen for the episode, in [-1, 1]; none, if it chooses at every step."""
        size, nobody = self.game.adversary.size, self.game.adversary.unit(self.game.neutral)[None]
        if not self.opponent:
            return nobody
        if self.game.scope == "step":
            return nobody[:0]
        points = lattice(1, RIVALS // 2) if size == 1 else vertices_and_centre(size)
        return points[:: -(-len(points) // RIVALS)]

    @property
    def feedback(self) -> int:
        """How many gains beside its actions a step of a plan has: without an opponent there is nothing to react to."""
        return self.game.agent.size * self.game.observation.size if self.opponent else 0

    def act(self, thought: Thought, obs: Float[Array, " p"]) -> tuple[Thought, Float[Array, " q"]]:
        thought = think(self, thought, obs)
        return thought, self.action(thought)

    def action(self, thought: Thought) -> Float[Array, " q"]:
        return self.game.agent.place(thought.agent[0, : self.game.agent.size])

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        """Without a memory every plan is made from nothing."""
        flat = obs.reshape(-1, obs.shape[-1])
        return jax.vmap(lambda o: self.act(self.fresh(), o)[1])(flat).reshape(*obs.shape[:-1], -1)


class Answering(AbstractAdversary):
    """The adversary of a planner: what its thoughts say the adversary will do (`own`: in the agent's own problem)."""

    planning: Planning
    own: bool = eqx.field(static=True, default=False)

    def reply(self, memory: Thought, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
        return self.read(memory)

    def read(self, thought: Thought) -> Float[Array, " qbar"]:
        box = self.planning.game.adversary
        return box.place((thought.rival if self.own else thought.answer)[0, : box.size])

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        flat, planning = obs.reshape(-1, obs.shape[-1]), self.planning
        answers = jax.vmap(lambda o: self.read(planning.act(planning.fresh(), o)[0]))(flat)
        return answers.reshape(*obs.shape[:-1], -1)


def think(planning: Planning, thought: Thought, obs: Float[Array, " p"]) -> Thought:
    """Both phases, from the plans of the step before."""
    rounds = planning.size.rounds * jnp.where(thought.time == 0, COLD, 1)
    search = begin(planning, thought, obs)
    search = pursue(planning, search, jnp.int32(0), rounds)
    search = respond(planning, search, jnp.int32(0), rounds)
    return conclude(planning, thought, search)


def begin(planning: Planning, thought: Thought, obs: Float[Array, " p"]) -> Search:
    """The plans of the step before, one step on."""

    def ahead(plan: Array, std: float, actions: int, feedback: int = 0) -> PlanDistribution:
        moved = jnp.where(thought.time == 0, plan, jnp.concatenate([plan[1:], plan[-1:]]))
        first = jnp.full_like(plan, CALM).at[:, : actions + feedback].set(WARY).at[:, :actions].set(std)
        return PlanDistribution(moved, first, moved)

    q, qbar = planning.game.agent.size, planning.game.adversary.size
    agent = ahead(thought.agent, BOLD, q, planning.feedback)
    rival, answer = ahead(thought.rival, WARY, qbar), ahead(thought.answer, CALM, qbar)
    evidence = thought.evidence
    if len(planning.choices) > 1:
        evidence = evidence + jnp.where(thought.time > 0, likelihood(planning, thought, obs), 0.0)
    return Search(thought.time, obs, evidence, agent, rival, answer, thought.plans)


def likelihood(planning: Planning, thought: Thought, obs: Float[Array, " p"]) -> Float[Array, " k"]:
    """The logarithm of how likely each choice made what followed the last action."""
    game, adversary = planning.game, planning.game.adversary.place(planning.choices)
    agent = jnp.broadcast_to(planning.action(thought), (len(adversary), game.agent.size))
    before = jnp.broadcast_to(whole(game, thought.seen), (len(adversary), game.predicted_size))
    shares, actions = game.execute(agent, adversary)

    def of(executed: Array) -> Array:
        mean, epistemic, aleatoric = planning.model.predict(before, executed, adversary)
        missed = obs - inside(planning, mean)[:, : len(obs)]
        unsure = (jnp.square(epistemic) + jnp.square(aleatoric))[:, : len(obs)]
        variance = jnp.square(GRAIN * game.scale) + unsure
        return -(jnp.square(missed) / variance + jnp.log(variance)).sum(-1) / 2

    return jax.scipy.special.logsumexp(jnp.stack([of(executed) for executed in actions]), 0, shares[:, None])


def conclude(planning: Planning, thought: Thought, search: Search) -> Thought:
    """Means, not best samples: they are steadier. What an adversary chose for an episode stays."""
    held = (planning.game.scope == "episode") & (thought.time > 0)
    answer = jnp.where(held, thought.answer, search.answer.mean)
    plans = search.agent.mean, search.rival.mean, search.plans, answer
    return Thought(thought.time + 1, search.seen, search.evidence, *plans)


def rebut(planning: Planning, thought: Thought, plans: Float[Array, "m h qg"], obs: Float[Array, " p"]) -> Thought:
    """The second phase alone: an answer to the plans of another planner."""
    search = begin(planning, thought, obs)._replace(plans=plans)
    rounds = planning.size.rounds * jnp.where(thought.time == 0, COLD, 1)
    search = respond(planning, search, jnp.int32(0), rounds)
    return conclude(planning, thought, search._replace(plans=thought.plans))


def pursue(planning: Planning, search: Search, first: Array, rounds: Array) -> Search:
    """Rounds `first`, `first` + 1, ... of the first phase: the agent's plans against rivals."""
    size, game = planning.size, planning.game
    q, qbar = game.agent.size, game.adversary.size
    choices = planning.choices[:, None]
    rivals = len(choices) or RIVALS
    plans = size.samples // rivals
    shift = 1 - search.evidence.argmax() if len(choices) else 0  # the likeliest is second: `reaction`
    weights = jnp.roll(jax.nn.softmax(search.evidence), shift)

    def round(i: Array, search: Search) -> Search:
        keys = jax.random.split(dice(planning, search.time, 2 * i), 3)
        agent = draw(search.agent, plans, SMOOTHNESS, keys[0])
        if len(choices):
            adversary = jnp.broadcast_to(jnp.roll(choices, shift, 0), (rivals, size.horizon, qbar))
        else:
            adversary = draw(search.rival, rivals, SMOOTHNESS, keys[1])
            adversary = adversary.at[2].set(game.adversary.unit(game.neutral)).at[3].set(search.answer.mean[:, :qbar])
        moves, eta = jnp.split(agent, [q + planning.feedback], -1)
        eta = eta[:, None] if planning.agent_eta else None
        gains = returns(planning, search.seen, moves[:, None], adversary[None], eta, keys[2])
        score = gains @ weights if len(choices) else gains.min(1)
        ours, good = refit(agent, score, size.elite)
        them, _ = (search.rival, good) if len(choices) else refit(adversary, -(good @ gains), size.elite)
        return search._replace(agent=ours, rival=them, plans=moves[jax.lax.top_k(score, PLANS)[1]])

    return jax.lax.fori_loop(first, first + rounds, round, search)


def respond(planning: Planning, search: Search, first: Array, rounds: Array) -> Search:
    """Rounds of the second phase: answers to the agent's plans, which stay."""
    game, size = planning.game, planning.size
    qbar = game.adversary.size
    lasting = game.scope == "episode"

    def round(i: Array, search: Search) -> Search:
        keys = jax.random.split(dice(planning, search.time, 2 * i + 1))
        adversary = draw(search.answer, size.samples // PLANS, 1.0 if lasting else SMOOTHNESS, keys[0])
        eta = adversary[None, :, :, qbar:] if planning.response_eta else None
        gains = returns(planning, search.seen, search.plans[:, None], adversary[None, :, :, :qbar], eta, keys[1])
        return search._replace(answer=refit(adversary, -gains.mean(0), size.elite)[0])

    return jax.lax.fori_loop(first, first + rounds, round, search)


def dice(planning: Planning, time: Array, round: Array) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(planning.seed), time), round)


def draw(belief: PlanDistribution, count: int, smoothness: float, key: PRNGKeyArray) -> Float[Array, "n h d"]:
    """Plans of a belief, its best and its mean first, with noise that is smooth in time (1: the same at all times)."""
    h, d = belief.mean.shape
    lag = jnp.arange(h)[:, None] - jnp.arange(h)[None]
    fading = jnp.where(lag >= 0, smoothness ** jnp.maximum(lag, 0), 0.0)
    fading = fading * jnp.where(jnp.arange(h) > 0, jnp.sqrt(1 - smoothness**2), EMPHASIS)
    noise = jnp.einsum("gh,nhd->ngd", fading, jax.random.normal(key, (count, h, d)))
    plans = jnp.clip(belief.mean + belief.std * noise, -1, 1)
    return plans.at[0].set(belief.best).at[1].set(belief.mean)


def refit(
    plans: Float[Array, "n h d"], score: Float[Array, " n"], share: float
) -> tuple[PlanDistribution, Float[Array, " n"]]:
    """The belief of the plans with the highest scores, and which they are, as weights."""
    score = jnp.nan_to_num(score, nan=-jnp.inf)
    least = jax.lax.top_k(score, max(2, round(share * len(plans))))[0][-1]
    weight = (score >= least) / (score >= least).sum()
    mean = jnp.einsum("n,nhd->hd", weight, plans)
    std = jnp.sqrt(jnp.einsum("n,nhd->hd", weight, jnp.square(plans - mean)))
    return PlanDistribution(mean, std + FLOOR, plans[score.argmax()]), weight


def returns(
    planning: Planning, obs: Float[Array, " p"], agent: Float[Array, "_ _ h qg"], adversary: Float[Array, "_ _ h qbar"],
    eta: Float[Array, "_ _ h p"] | None, key: PRNGKeyArray,
) -> Float[Array, "a b"]:  # fmt: skip
    """The discounted return of every plan against every other, in the model that eta chooses or (None) a sampled one.

    Chance is the same for all plans of the agent (in the second phase: for all answers): none of them is just lucky.
    """
    game, model = planning.game, planning.model
    steps = planning.size.horizon
    shape = jnp.broadcast_shapes(agent.shape[:2], adversary.shape[:2])
    keys = jax.random.split(key, 3)
    luck = jax.random.uniform(keys[0], (steps, 2, 1, shape[1]))
    omega = jax.random.normal(keys[1], (steps, 1, shape[1], game.predicted_size))
    along = [None if plan is None else jnp.moveaxis(plan, -2, 0) for plan in (agent, adversary, eta)]

    def step(carry: tuple[Array, Array, Array], x: Any):
        obs, weight, total = carry
        (agent, adversary, eta), (luck, whose), omega = x
        placed = game.agent.place(reaction(planning, agent, obs)), game.adversary.place(adversary)
        action, adversary = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in placed)
        executed = chosen(game.execute(action, adversary), luck)
        if eta is None:
            member = pick(jnp.broadcast_to(whose, shape), model.members)
            following = sampled(model.member(obs, executed, adversary, member), omega)
        else:
            following = hallucinate(model.predict(obs, executed, adversary), eta, planning.beta, omega)
        following = inside(planning, following)
        total = total + weight * game.reward(obs, executed, adversary, following)
        return (following, weight * planning.discount * (1 - game.over(following)), total), None

    carry = jnp.broadcast_to(whole(game, obs), (*shape, game.predicted_size)), jnp.ones(shape), jnp.zeros(shape)
    (last, weight, total), _ = jax.lax.scan(step, carry, (along, luck, omega))
    return total if planning.value is None else total + weight * planning.value(last)


def reaction(planning: Planning, plan: Float[Array, "_ _ qg"], obs: Float[Array, "a b p"]) -> Float[Array, "a b q"]:
    """What the agent does who is not where it would be against the second rival: the mean one, or the likeliest."""
    game = planning.game
    action, feedback = jnp.split(plan, [game.agent.size], -1)
    if not feedback.size:
        return action
    away = (obs - obs[:, 1:2])[..., : game.observation.size] / game.scale
    feedback = GAIN * feedback.reshape(*feedback.shape[:-1], *action.shape[-1:], -1)
    return jnp.clip(action + jnp.einsum("...qp,...p->...q", feedback, away), -1, 1)


def whole(game: Game, obs: Float[Array, " p"]) -> Float[Array, " predicted"]:
    """With reports of what is not known of the task."""
    return jnp.pad(obs, (0, game.predicted_size - obs.shape[-1]))


def inside(planning: Planning, obs: Float[Array, "*b p"]) -> Float[Array, "*b p"]:
    """A possible observation: the game's, or where data say so, near what has been seen."""
    return planning.game.project(obs) if planning.limits is None else planning.limits.clip(obs)
