"""The solver for actions of many dimensions: actor-critic for both problems, and networks that act."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.models.base import AbstractModel
from rhucrl.networks.layers import Perceptron, twice
from rhucrl.networks.policies import AbstractPolicy, Answer, Gaussian, Normaliser
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update as actor_critic
from rhucrl.solvers.actor_critic.update import Problem, slope, unit, world
from rhucrl.solvers.base import AbstractSolver, Pair, SolverNumbers, deployed
from rhucrl.solvers.bounds import Contest, bounds, pessimistic
from rhucrl.solvers.look_ahead.candidates import lattice

CORNERS = 64  # at most so many extremes of the adversary's box are held


class ActorCriticState(NamedTuple):
    """Both problems, and the units in which their networks see the state."""

    agent: Problem
    response: Problem
    normaliser: Normaliser


class ActorCriticValue(eqx.Module):
    """V(s) of the agent's problem, the lesser of two critics'."""

    critics: Perceptron
    normaliser: Normaliser
    scale: Float[Array, ""]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b"]:
        return self.scale * jnp.minimum(*self.critics(twice(self.normaliser(obs)))[..., 0])


class ActorCriticSolver(AbstractSolver[ActorCriticState]):
    """The agent's problem, then the response of an adversary to the agent that came of it."""

    config: TrainConfig = eqx.field(static=True)
    game: Game

    def begin(self, keys: PRNGKeyArray) -> ActorCriticState:
        p = self.game.observation.size + len(self.game.winding)
        agent, response = (actor_critic.begin(self.game, self.config.solver.width, key) for key in keys)
        return ActorCriticState(agent, response, Normaliser(jnp.zeros(p), jnp.ones(p), self.game.winding))

    def players(self, model: AbstractModel, state: ActorCriticState, numbers: SolverNumbers) -> Pair:
        problem = state.agent if ALGORITHMS[self.config.algo].deployed == "own" else state.response
        policy = Gaussian(state.agent.networks.agent, state.normaliser, self.game.agent)
        return Pair(policy, Answer(Gaussian(problem.networks.adversary, state.normaliser, self.game.adversary)))

    def improve(
        self, model: AbstractModel, replay: Replay, state: ActorCriticState, numbers: SolverNumbers, keys: PRNGKeyArray
    ) -> tuple[ActorCriticState, dict[str, Array]]:
        row = ALGORITHMS[self.config.algo]
        agent, losses = solve(self, model, replay, state.agent, numbers, row.agent_eta, False, keys[0])
        networks = state.response.networks._replace(agent=agent.networks.agent)
        response, others = state.response._replace(networks=networks), {}
        if row.deployed == "response" and self.config.setting != "none":
            response, others = solve(self, model, replay, response, numbers, row.response_eta, True, keys[1])
        metrics = {f"agent_{name}": x for name, x in losses.items()}
        metrics |= {f"response_{name}": x for name, x in others.items()}
        return ActorCriticState(agent, response, world(self.game, model, replay).normaliser), metrics

    def judge(
        self, model: AbstractModel, replay: Replay, state: ActorCriticState, output: Gaussian,
        numbers: SolverNumbers, key: PRNGKeyArray,
    ) -> dict[str, Array]:  # fmt: skip
        return judged(self, model, replay, state, output, numbers, key)

    def value(
        self, model: AbstractModel, replay: Replay, state: ActorCriticState, numbers: SolverNumbers
    ) -> ActorCriticValue:
        return ActorCriticValue(state.agent.targets, state.normaliser, unit(self.game, numbers.discount))


@compiled("sign", "frozen")
def solve(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, problem: Problem, numbers: SolverNumbers,
    sign: int, frozen: bool, key: PRNGKeyArray,
) -> tuple[Problem, dict[str, Array]]:  # fmt: skip
    """All gradient steps of an episode for one problem."""
    config, game = solver.config, solver.game
    contested = ALGORITHMS[config.algo].opponent and config.setting != "none"
    starts = max(config.solver.batch // config.solver.lanes, 1) if contested else config.solver.batch
    lanes = config.solver.lanes if contested and not frozen else 1
    updates = round(config.solver.updates * game.horizon)
    sizes = (lanes, starts, config.solver.model_steps, updates, config.solver.broad)
    here = world(game, model, replay, sign, contested)
    if config.solver.innovations == "recorded":
        here = here._replace(innovations=actor_critic.innovations(model, replay))
    return actor_critic.improve(here, problem, replay, corners(game), numbers, frozen, *sizes, key)


def corners(game: Game) -> Float[Array, "c qbar"]:
    """Extremes of the adversary's box."""
    return game.adversary.place(lattice(game.adversary.size, 2)[:CORNERS])


@compiled()
def judged(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, state: ActorCriticState, output: Gaussian,
    numbers: SolverNumbers, key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    game, pair, keys = solver.game, solver.players(model, state, numbers), jax.random.split(key)
    here, scale = world(game, model, replay), unit(game, numbers.discount)

    def contest(policy: AbstractPolicy) -> Contest:
        own = Answer(Gaussian(state.agent.networks.adversary, state.normaliser, game.adversary))
        up, down = (slope(here, problem.targets, scale, numbers) for problem in (state.agent, state.response))
        sides = (policy, deployed(solver.config.algo, pair, game), own, corners(game)[:8], up, down)
        return Contest(game, model, *sides, here.limits.clip, numbers.beta)

    j = bounds(contest(pair.policy), keys[0])
    again = pessimistic(contest(output), keys[1])
    names = ("J_optimistic", "J_expected", "J_pessimistic", "J_pessimistic_output")
    return dict(zip(names, (*j, again), strict=True))
