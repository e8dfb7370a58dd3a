"""The solver of small games: fitted value iteration for both problems, and players that look ahead in the model.

It considers every pair of candidate actions at every state, so it is for actions of few dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from rhucrl import replay as store
from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.networks.critics import Critic, CriticFunction
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.base import AbstractSolver, SolverNumbers, deployed
from rhucrl.solvers.bounds import ByRule, Contest, Eta, bounds, pessimistic
from rhucrl.solvers.look_ahead import value_iteration
from rhucrl.solvers.look_ahead.backup import slope, stateless, value
from rhucrl.solvers.look_ahead.candidates import adversary_candidates, agent_candidates
from rhucrl.solvers.look_ahead.policies import AdversaryPolicy, AgentPolicy, CriticPlayer
from rhucrl.solvers.look_ahead.value_iteration import Proposals, Values

ROLLOUTS = 1  # of each lane: games that this solver is for begin at one state
PERTURBATION = 0.4  # largest standard deviation of replayed start states, in units of the observation's scale


class LookAheadState(NamedTuple):
    """The critics of both problems."""

    agent: Values
    response: Values


class LookAheadPair(NamedTuple):
    """Both players look ahead, each with the critic of its own problem."""

    policy: AgentPolicy
    response: AdversaryPolicy

    @property
    def own(self) -> AdversaryPolicy:
        return AdversaryPolicy(self.policy.player)


class LookAheadValue(eqx.Module):
    """V(s) of the agent's problem; of an adversary of episode scope, under the values that weigh most."""

    player: CriticPlayer

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b"]:
        player = self.player
        if player.game.scope == "step":
            return value(player.game, player.critic, obs, player.game.neutral)
        weights = stateless(player.game, player.critic, player.origin(), player.adversary)
        return value(player.game, player.critic, obs[..., None, :], player.adversary) @ weights


class LookAheadSolver(AbstractSolver[LookAheadState]):
    """Fitted value iteration for one problem after the other."""

    config: TrainConfig = eqx.field(static=True)
    game: Game

    def begin(self, keys: Key[Array, " k"]) -> LookAheadState:
        game, its = self.game, self.config.solver
        inputs = game.observation.size + (game.adversary.size if game.scope == "episode" else 0)
        critics = [Critic(inputs, its.features, its.width, its.frequency, key) for key in keys]
        return LookAheadState(*(value_iteration.start(critic) for critic in critics))

    def players(self, model: AbstractModel, state: LookAheadState, numbers: SolverNumbers) -> LookAheadPair:
        row = ALGORITHMS[self.config.algo]
        adversary = adversary_candidates(self.game, row.opponent)
        agent, response = (
            CriticPlayer(self.game, model, values.average, jnp.float32(eta), numbers, adversary)
            for values, eta in zip(state, (row.agent_eta, row.response_eta), strict=True)
        )
        candidates = agent_candidates(self.game.agent, self.config.solver.acting_points)
        return LookAheadPair(AgentPolicy(agent, candidates), AdversaryPolicy(response))

    def improve(
        self, model: AbstractModel, replay: Replay, state: LookAheadState, numbers: SolverNumbers,
        keys: Key[Array, " k"],
    ) -> tuple[LookAheadState, dict[str, Array]]:  # fmt: skip
        agent, agent_loss = solve_agent(self, model, replay, state, numbers, keys[0])
        state = state._replace(agent=agent)
        response, response_loss = solve_response(self, model, replay, state, numbers, keys[1])
        return state._replace(response=response), {"agent_loss": agent_loss, "response_loss": response_loss}

    def judge(
        self, model: AbstractModel, replay: Replay, state: LookAheadState, output: AgentPolicy,
        numbers: SolverNumbers, key: PRNGKeyArray,
    ) -> dict[str, Array]:  # fmt: skip
        return judged(self, model, state, output, numbers, key)

    def value(
        self, model: AbstractModel, replay: Replay, state: LookAheadState, numbers: SolverNumbers
    ) -> LookAheadValue:
        return LookAheadValue(self.players(model, state, numbers).policy.player)


@compiled()
def solve_agent(
    solver: LookAheadSolver, model: AbstractModel, replay: Replay, state: LookAheadState, numbers: SolverNumbers,
    key: PRNGKeyArray,
) -> tuple[Values, Array]:  # fmt: skip
    """The agent's problem, `eq:rhucrl:learner`: every candidate is considered."""
    candidates = agent_candidates(solver.game.agent, solver.config.solver.agent_points)
    proposals = lambda obs: jnp.broadcast_to(candidates, (*obs.shape[:-1], *candidates.shape))  # noqa: E731
    sign = ALGORITHMS[solver.config.algo].agent_eta
    return solve(solver, model, replay, state.agent, proposals, sign, 1, numbers, key)


@compiled()
def solve_response(
    solver: LookAheadSolver, model: AbstractModel, replay: Replay, state: LookAheadState, numbers: SolverNumbers,
    key: PRNGKeyArray,
) -> tuple[Values, Array]:  # fmt: skip
    """The adversary's problem, `eq:rhucrl:adversary`: the agent's action is the chosen policy's."""
    policy, sign = solver.players(model, state, numbers).policy, ALGORITHMS[solver.config.algo].response_eta
    return solve(solver, model, replay, state.response, lambda obs: policy(obs)[..., None, :], sign, 2, numbers, key)


def solve(
    solver: LookAheadSolver, model: AbstractModel, replay: Replay, values: Values, proposals: Proposals, sign: int,
    haste: int, numbers: SolverNumbers, key: PRNGKeyArray,
) -> tuple[Values, Array]:  # fmt: skip
    """All gradient steps of an episode for one problem; an easy one may be solved with haste: fewer, on less data."""
    config, game, keys = solver.config, solver.game, jax.random.split(key, 3)
    adversary = adversary_candidates(game, ALGORITHMS[config.algo].opponent)
    starts = start_states(solver, replay, config.solver.pool // haste**2, keys[0])
    rollouts = value_iteration.rollouts(
        game, model, values.target, starts, proposals, adversary, jnp.float32(sign), numbers,
        config.solver.model_steps, keys[1],
    )  # fmt: skip
    updates = round(config.solver.updates * game.horizon / haste)
    return value_iteration.improve(
        game, values, rollouts, adversary, jnp.float32(sign), numbers, config.solver.batch, updates, keys[2]
    )


@compiled()
def judged(
    solver: LookAheadSolver, model: AbstractModel, state: LookAheadState, output: AgentPolicy,
    numbers: SolverNumbers, key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    """J^(o), J^(e), J^(p) of the players, J^(p) of the output policy, and what both critics say about the start."""
    game, pair, keys = solver.game, solver.players(model, state, numbers), jax.random.split(key)
    origin, algo = pair.policy.player.origin(), solver.config.algo
    return bounds(contest(algo, pair.policy, pair, model), ROLLOUTS, keys[0]) | {
        "J_pessimistic_output": pessimistic(contest(algo, output, pair, model), ROLLOUTS, keys[1]),
        "agent_value": value(game, state.agent.critic, origin, game.neutral),
        "response_value": value(game, state.response.critic, origin, game.neutral),
    }  # fmt: skip


def contest(algo: str, policy: AgentPolicy, pair: LookAheadPair, model: AbstractModel) -> Contest:
    """A policy against the adversaries of a pair."""
    player = policy.player

    def along(critic: CriticFunction, sign: int) -> Eta:
        def eta(obs: Array, action: Array, executed: Array, adversary: Array, prediction: Prediction) -> Array:
            if player.game.scope == "step":
                return sign * jnp.sign(slope(player.game, critic, obs, player.adversary)[..., 0, :])
            flat = obs.reshape(-1, obs.shape[-1]), adversary.reshape(-1, adversary.shape[-1])
            at = jax.vmap(lambda o, abar: slope(player.game, critic, o, abar[None])[0])
            return sign * jnp.sign(at(*flat).reshape(obs.shape))

        return eta

    return Contest(
        player.game, model, policy, deployed(algo, pair, player.game), AdversaryPolicy(player), *held(player.adversary),
        along(player.critic, 1), along(pair.response.player.critic, -1), player.game.project, player.numbers.beta,
    )  # fmt: skip


def held(actions: Float[Array, "k qbar"]) -> tuple[int, ByRule]:
    """To hold each of some actions, as rules."""
    return len(actions), lambda which, obs: actions[which]


def start_states(solver: LookAheadSolver, replay: Replay, n: int, key: PRNGKeyArray) -> Float[Array, "n p"]:
    """Where model rollouts start: anywhere, and near what was seen."""
    game, keys = solver.game, jax.random.split(key, 4)
    broad = round(solver.config.solver.broad * n)
    seen = replay.data.obs[store.draw(replay, n - broad, keys[1])]
    spread = jax.random.uniform(keys[3], (n - broad, 1), maxval=PERTURBATION)
    seen = game.project(seen + spread * game.scale * jax.random.normal(keys[2], seen.shape))
    return jnp.concatenate([game.sample(keys[0], broad), seen])
