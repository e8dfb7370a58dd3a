"""The solver that learns nothing but the model: both players plan in it, with a receding horizon."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Box, Game, JaxGame, chosen
from rhucrl.hallucination import hallucinate, sampled
from rhucrl.models.base import AbstractModel
from rhucrl.play import act, fresh, reply
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic.problem import observed_limits
from rhucrl.solvers.base import deployed
from rhucrl.solvers.bounds import CONFIDENCE
from rhucrl.solvers.look_ahead.backup import SolverNumbers
from rhucrl.solvers.look_ahead.value_iteration import pick
from rhucrl.solvers.planner.search import Answering, Planning, Size, inside

OPTIMIST, MEMBER, PESSIMIST = range(3)


class PlannerState(NamedTuple):
    """The range of what has been seen, where the game does not say what is possible."""

    limits: Box | None


class PlannerPair(NamedTuple):
    """The agent that plans; the adversary's answer is part of its thoughts."""

    policy: Planning

    @property
    def response(self) -> Answering:
        return Answering(self.policy)

    @property
    def own(self) -> Answering:
        return Answering(self.policy, own=True)


def begin(config: TrainConfig, game: Game, keys: PRNGKeyArray) -> PlannerState:
    anywhere = jnp.full(game.predicted_size, jnp.inf)
    return PlannerState(None if isinstance(game, JaxGame) else Box(-anywhere, anywhere))


def players(
    config: TrainConfig, game: Game, model: AbstractModel, learner: PlannerState, numbers: SolverNumbers
) -> PlannerPair:
    row, known = ALGORITHMS[config.algo], config.model.kind == "known"
    size = Size(config.solver.steps, config.solver.samples, config.solver.elite, config.solver.rounds)
    signs = (0, 0) if known else (row.agent_eta, row.response_eta)
    contested = row.opponent and config.setting != "none"
    discount = jnp.float32(config.solver.discount)
    return PlannerPair(
        Planning(game, model, numbers.beta, discount, jnp.int32(0), learner.limits, None, size, *signs, contested)
    )


def improve(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: PlannerState,
    numbers: SolverNumbers, keys: PRNGKeyArray,
) -> tuple[PlannerState, dict[str, Array]]:  # fmt: skip
    """Nothing is learned; plans stay near what has been seen."""
    return (learner if learner.limits is None else PlannerState(observed_limits(game, replay))), {}


@compiled("config")
def judge(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: PlannerState, champion: Planning,
    numbers: SolverNumbers, key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    """J^(o), J^(e), J^(p) of the agent that plans in this model, and J^(p) of the champion."""
    policy, keys = players(config, game, model, learner, numbers).policy, jax.random.split(key)
    whole = jnp.array([OPTIMIST, MEMBER, PESSIMIST])
    optimistic, expected, pessimistic = imagined(config, policy, policy, whole, keys[0])
    (again,) = imagined(config, champion, policy, whole[2:], keys[1])
    return {
        "J_optimistic": jnp.maximum(optimistic, expected), "J_expected": expected,
        "J_pessimistic": jnp.minimum(pessimistic, expected), "J_pessimistic_output": again,
    }  # fmt: skip


def imagined(
    config: TrainConfig, policy: Planning, place: Planning, kinds: Array, key: PRNGKeyArray
) -> Float[Array, " k"]:
    """Returns of whole episodes of a planner in the model of another (`place`), as chosen by each kind of eta."""
    game, model = place.game, place.model
    opponent = deployed(config.algo, PlannerPair(policy), game)
    q, qbar = game.agent.size, game.adversary.size

    def episode(kind: Array, key: PRNGKeyArray) -> Array:
        def step(carry: tuple[Array, Array, Any], key: PRNGKeyArray):
            obs, alive, memory = carry
            keys = jax.random.split(key, 3)
            seen = obs[: game.observation.size]
            memory, action = act(policy, memory, seen)
            adversary = reply(opponent, memory, seen, action)
            executed = chosen(game.execute(action, adversary), jax.random.uniform(keys[0]))
            noise = jax.random.normal(keys[1], obs.shape)
            up = memory.mine[0, q + policy.feedback :] if policy.agent_eta else jnp.zeros_like(obs)
            down = memory.answer[0, qbar:] if policy.response_eta else jnp.zeros_like(obs)
            eta = jnp.where(kind == OPTIMIST, up, jnp.where(kind == PESSIMIST, down, 0.0))
            reach = jnp.where(kind == PESSIMIST, jnp.minimum(place.beta, CONFIDENCE), place.beta)
            plausible = hallucinate(model.predict(obs, executed, adversary), eta, reach, noise)
            member = model.member(obs, executed, adversary, pick(jax.random.uniform(keys[2]), model.members))
            following = inside(place, jnp.where(kind == MEMBER, sampled(member, noise), plausible))
            reward = alive * game.reward(obs, executed, adversary, following)
            return (following, alive * (1 - game.over(following)), memory), reward

        start = game.starts(jax.random.key(0), 1)[0], jnp.float32(1), fresh(policy)
        return jax.lax.scan(step, start, jax.random.split(key, game.horizon))[1].sum()

    return jax.vmap(episode)(kinds, jax.random.split(key, kinds.shape[0]))
