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
from rhucrl.networks.policies import Answer, Gaussian, Normaliser
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update as actor_critic
from rhucrl.solvers.actor_critic.update import Problem, slope, unit, world
from rhucrl.solvers.base import Pair, deployed
from rhucrl.solvers.bounds import Contest, bounds, pessimistic
from rhucrl.solvers.look_ahead.backup import SolverNumbers
from rhucrl.solvers.look_ahead.candidates import lattice

CORNERS = 64  # at most so many extremes of the adversary's box are held


class ActorCriticState(NamedTuple):
    """Both problems, and the units in which their networks see the state."""

    agent: Problem
    response: Problem
    normaliser: Normaliser


def begin(config: TrainConfig, game: Game, keys: PRNGKeyArray) -> ActorCriticState:
    p = game.observation.size + len(game.winding)
    agent, response = (actor_critic.begin(game, config.solver.width, key) for key in keys)
    return ActorCriticState(agent, response, Normaliser(jnp.zeros(p), jnp.ones(p), game.winding))


def players(
    config: TrainConfig, game: Game, model: AbstractModel, learner: ActorCriticState, numbers: SolverNumbers
) -> Pair:
    problem = learner.agent if ALGORITHMS[config.algo].deployed == "own" else learner.response
    policy = Gaussian(learner.agent.networks.agent, learner.normaliser, game.agent)
    return Pair(policy, Answer(Gaussian(problem.networks.adversary, learner.normaliser, game.adversary)))


class ActorCriticValue(eqx.Module):
    """V(s) of the agent's problem, the lesser of two critics'."""

    critics: Perceptron
    normaliser: Normaliser
    scale: Float[Array, ""]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b"]:
        return self.scale * jnp.minimum(*self.critics(twice(self.normaliser(obs)))[..., 0])


def worth(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    numbers: SolverNumbers,
) -> ActorCriticValue:  # fmt: skip
    return ActorCriticValue(learner.agent.targets, learner.normaliser, unit(game, numbers.discount))


def improve(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    numbers: SolverNumbers, keys: PRNGKeyArray,
) -> tuple[ActorCriticState, dict[str, Array]]:  # fmt: skip
    """Solve both problems in the current model (`eq:rhucrl`)."""
    row = ALGORITHMS[config.algo]
    agent, told = solve(config, game, model, replay, learner.agent, numbers, row.agent_eta, False, keys[0])
    networks = learner.response.networks._replace(agent=agent.networks.agent)
    response, heard = learner.response._replace(networks=networks), {}
    if row.deployed == "response" and config.setting != "none":
        response, heard = solve(config, game, model, replay, response, numbers, row.response_eta, True, keys[1])
    told = {f"agent_{name}": x for name, x in told.items()} | {f"response_{name}": x for name, x in heard.items()}
    return ActorCriticState(agent, response, world(game, model, replay).normaliser), told


@compiled("config", "sign", "frozen")
def solve(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, problem: Problem, numbers: SolverNumbers,
    sign: int, frozen: bool, key: PRNGKeyArray,
) -> tuple[Problem, dict[str, Array]]:  # fmt: skip
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


@compiled("config")
def judge(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    champion: Gaussian, numbers: SolverNumbers, key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    """J^(o), J^(e), J^(p) of the chosen pair, and J^(p) of the champion."""
    keys, pair = jax.random.split(key), players(config, game, model, learner, numbers)
    here = world(game, model, replay)
    scale = unit(game, numbers.discount)

    def contest(policy: Gaussian) -> Contest:
        own = Answer(Gaussian(learner.agent.networks.adversary, learner.normaliser, game.adversary))
        up, down = (slope(here, problem.targets, scale, numbers) for problem in (learner.agent, learner.response))
        sides = (policy, deployed(config.algo, pair, game), own, corners(game)[:8], up, down)
        return Contest(game, model, *sides, here.limits.clip, numbers.beta)

    j = bounds(contest(pair.policy), keys[0])
    again = pessimistic(contest(champion), keys[1])
    names = ("J_optimistic", "J_expected", "J_pessimistic", "J_pessimistic_output")
    return dict(zip(names, (*j, again), strict=True))
