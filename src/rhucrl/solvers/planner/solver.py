"""The solver that learns nothing but the model: both players plan in it, with a receding horizon."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Box, Game, JaxGame, chosen
from rhucrl.errors import UsageError
from rhucrl.hallucination import hallucinate, sampled
from rhucrl.models.base import AbstractModel
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic.problem import observed_limits
from rhucrl.solvers.base import AbstractSolver, SolverNumbers, Value, deployed
from rhucrl.solvers.bounds import CONFIDENCE
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


class PlannerSolver(AbstractSolver[PlannerState]):
    """Nothing is learned; plans stay near what has been seen."""

    config: TrainConfig = eqx.field(static=True)
    game: Game

    def begin(self, keys: Key[Array, " k"]) -> PlannerState:
        anywhere = jnp.full(self.game.predicted_size, jnp.inf)
        return PlannerState(None if isinstance(self.game, JaxGame) else Box(-anywhere, anywhere))

    def players(self, model: AbstractModel, state: PlannerState, numbers: SolverNumbers) -> PlannerPair:
        config, its = self.config, self.config.solver
        row, size = ALGORITHMS[config.algo], Size(its.steps, its.samples, its.elite, its.rounds)
        signs = (0, 0) if config.model.kind == "known" else (row.agent_eta, row.response_eta)
        contested = row.opponent and config.setting != "none"
        traced = numbers.beta, jnp.float32(its.discount), jnp.int32(0), state.limits
        return PlannerPair(Planning(self.game, model, *traced, None, size, *signs, contested))

    def improve(
        self, model: AbstractModel, replay: Replay, state: PlannerState, numbers: SolverNumbers, keys: Key[Array, " k"]
    ) -> tuple[PlannerState, dict[str, Array]]:
        return (state if state.limits is None else PlannerState(observed_limits(self.game, replay))), {}

    def judge(
        self, model: AbstractModel, replay: Replay, state: PlannerState, output: Planning, numbers: SolverNumbers,
        key: PRNGKeyArray,
    ) -> dict[str, Array]:  # fmt: skip
        return judged(self, model, state, output, numbers, key)

    def value(self, model: AbstractModel, replay: Replay, state: PlannerState, numbers: SolverNumbers) -> Value:
        raise UsageError("a planner learns no critic: take the value of an agent that has learned with networks")


@compiled()
def judged(
    solver: PlannerSolver, model: AbstractModel, state: PlannerState, output: Planning, numbers: SolverNumbers,
    key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    policy, keys = solver.players(model, state, numbers).policy, jax.random.split(key)
    whole = jnp.array([OPTIMIST, MEMBER, PESSIMIST])
    optimistic, expected, pessimistic = imagined(solver.config.algo, policy, policy, whole, keys[0])
    (again,) = imagined(solver.config.algo, output, policy, whole[2:], keys[1])
    return {
        "J_optimistic": jnp.maximum(optimistic, expected), "J_expected": expected,
        "J_pessimistic": jnp.minimum(pessimistic, expected), "J_pessimistic_output": again,
    }  # fmt: skip


def imagined(algo: str, policy: Planning, place: Planning, kinds: Array, key: PRNGKeyArray) -> Float[Array, " k"]:
    """Returns of whole episodes of a planner in the model of another (`place`), as chosen by each kind of eta."""
    game, model = place.game, place.model
    opponent = deployed(algo, PlannerPair(policy), game)
    q, qbar = game.agent.size, game.adversary.size

    def episode(kind: Array, key: PRNGKeyArray) -> Array:
        def step(carry: tuple[Array, Array, Any], key: PRNGKeyArray):
            obs, alive, memory = carry
            keys = jax.random.split(key, 3)
            seen = obs[: game.observation.size]
            memory, action = policy.act(memory, seen)
            adversary = opponent.reply(memory, seen, action)
            executed = chosen(game.execute(action, adversary), jax.random.uniform(keys[0]))
            noise = jax.random.normal(keys[1], obs.shape)
            up = memory.agent[0, q + policy.feedback :] if policy.agent_eta else jnp.zeros_like(obs)
            down = memory.answer[0, qbar:] if policy.response_eta else jnp.zeros_like(obs)
            eta = jnp.where(kind == OPTIMIST, up, jnp.where(kind == PESSIMIST, down, 0.0))
            reach = jnp.where(kind == PESSIMIST, jnp.minimum(place.beta, CONFIDENCE), place.beta)
            plausible = hallucinate(model.predict(obs, executed, adversary), eta, reach, noise)
            member = model.member(obs, executed, adversary, pick(jax.random.uniform(keys[2]), model.members))
            following = inside(place, jnp.where(kind == MEMBER, sampled(member, noise), plausible))
            reward = alive * game.reward(obs, executed, adversary, following)
            return (following, alive * (1 - game.over(following)), memory), reward

        start = game.starts(jax.random.key(0), 1)[0], jnp.float32(1), policy.fresh()
        return jax.lax.scan(step, start, jax.random.split(key, game.horizon))[1].sum()

    return jax.vmap(episode)(kinds, jax.random.split(key, kinds.shape[0]))
