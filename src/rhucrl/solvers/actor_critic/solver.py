"""The solver for actions of many dimensions: actor-critic for both problems, and networks that act."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.networks.layers import Perceptron
from rhucrl.networks.policies import Answer, Gaussian, NetworkOrHeld, Nobody, Normaliser
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update
from rhucrl.solvers.actor_critic.problem import Problem, Role, World, observed_limits, observed_rewards, observed_units
from rhucrl.solvers.actor_critic.problem import begin as begin_problem
from rhucrl.solvers.base import Pair, deployed
from rhucrl.solvers.bounds import DEPLOYED, MEMBER, PESSIMIST, Contest, Eta, bounds, pessimistic, rollouts
from rhucrl.solvers.look_ahead.backup import SolverNumbers
from rhucrl.solvers.look_ahead.candidates import lattice

CORNERS = 64  # at most so many extremes of the adversary's box are held
CONSTANTS = 16  # of them, so many are asked what J^(p) is against them, other ones in every episode
ROLLOUTS = 4  # whole episodes from starts of their own, of which each J is the mean


class ActorCriticState(NamedTuple):
    """Both problems, the units in which their networks see states and rewards, and who responds to the agent."""

    agent: Problem
    response: Problem
    normaliser: Normaliser
    rewards: Float[Array, " two"]
    held: Float[Array, " qbar"]
    """The extreme that is the response, where holding it is worse for the agent than the network."""
    holds: Bool[Array, ""]
    practised: Int[Array, ""]
    """Real steps that updates have been made for."""


def begin(config: TrainConfig, game: Game, keys: PRNGKeyArray) -> ActorCriticState:
    p = game.observation.size + len(game.winding)
    agent, response = (begin_problem(game, config.solver.width, config.solver.critics, key) for key in keys)
    units = Normaliser(jnp.zeros(p), jnp.ones(p), game.winding)
    nobody = jnp.broadcast_to(game.neutral, (game.adversary.size,))
    return ActorCriticState(agent, response, units, jnp.zeros(2), nobody, jnp.bool_(False), jnp.int32(0))


def players(
    config: TrainConfig, game: Game, model: AbstractModel, learner: ActorCriticState, numbers: SolverNumbers
) -> Pair:
    own = ALGORITHMS[config.algo].deployed == "own"
    problem, holds = (learner.agent, jnp.bool_(False)) if own else (learner.response, learner.holds)
    policy = Gaussian(learner.agent.networks.agent, learner.normaliser, game.agent)
    network = Gaussian(problem.networks.adversary, learner.normaliser, game.adversary)
    return Pair(policy, NetworkOrHeld(network, learner.held, holds))


class ActorCriticValue(eqx.Module):
    """V(s) = Q(s, pi(s), pibar(s)) of the agent's problem, the mean of its critics."""

    world: World
    policy: Gaussian
    adversary: Answer | Nobody
    critics: Perceptron

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b"]:
        action = self.policy(obs)
        return self.world.values(self.critics, obs, action, self.adversary(obs, action)).mean(0)


def worth(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    numbers: SolverNumbers,
) -> ActorCriticValue:  # fmt: skip
    world, networks = world_of(game, model, replay, learner, numbers), learner.agent.networks
    adversary = Answer(world.adversary(networks.adversary)) if contested(config) else Nobody(game.neutral)
    return ActorCriticValue(world, world.agent(networks.agent), adversary, learner.agent.targets)


def world_of(
    game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState, numbers: SolverNumbers
) -> World:
    limits = observed_limits(game, replay)
    return World(game, model, learner.normaliser, limits, learner.rewards, numbers.discount)


def contested(config: TrainConfig) -> bool:
    return ALGORITHMS[config.algo].opponent and config.setting != "none"


def improve(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    numbers: SolverNumbers, keys: PRNGKeyArray,
) -> tuple[ActorCriticState, dict[str, Array]]:  # fmt: skip
    """Solve both problems in the current model (`eq:rhucrl`), with so many updates per real step."""
    row = ALGORITHMS[config.algo]
    low, high = observed_rewards(game, replay)
    rewards = jnp.stack([jnp.minimum(low, learner.rewards[0]), jnp.maximum(high, learner.rewards[1])])
    learner = learner._replace(normaliser=observed_units(game, replay), rewards=rewards)
    passes = max(round((int(replay.size) - int(learner.practised)) / game.horizon), 1)
    agent, response, metrics = learner.agent, learner.response, {}
    for i in range(passes):
        role = Role(row.agent_eta, contested(config), False)
        agent, made = solve(config, game, model, replay, learner, agent, role, numbers, jax.random.fold_in(keys[0], i))
        metrics = {f"agent_{name}": x for name, x in made.items()}
    if contested(config):
        response = response._replace(networks=response.networks._replace(agent=agent.networks.agent))
        role = Role(row.response_eta, True, True)
        response, made = solve(config, game, model, replay, learner, response, role, numbers, keys[1])
        metrics |= {f"response_{name}": x for name, x in made.items()}
    learner = learner._replace(agent=agent, response=response, practised=replay.size)
    if contested(config):
        learner, made = respond(config, game, model, replay, learner, numbers, keys[1])
        metrics |= made
    return learner, metrics


@compiled("config", "role")
def solve(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState, problem: Problem,
    role: Role, numbers: SolverNumbers, key: PRNGKeyArray,
) -> tuple[Problem, dict[str, Array]]:  # fmt: skip
    world = world_of(game, model, replay, learner, numbers)
    return update.improve(world, problem, replay, corners(game), role, config.solver, numbers, key)


def corners(game: Game) -> Float[Array, "c qbar"]:
    """Extremes of the adversary's box."""
    return game.adversary.place(lattice(game.adversary.size, 2)[:CORNERS])


@compiled("config")
def respond(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    numbers: SolverNumbers, key: PRNGKeyArray,
) -> tuple[ActorCriticState, dict[str, Array]]:  # fmt: skip
    """The minimiser of J^(p)(pi_t, .) (`eq:rhucrl:adversary`) among the network and extremes that are held."""
    network = players(config, game, model, learner._replace(holds=jnp.bool_(False)), numbers)
    keys = jax.random.split(key)
    candidates = jax.random.permutation(keys[0], corners(game))[:CONSTANTS]
    chooser = PESSIMIST if ALGORITHMS[config.algo].response_eta else MEMBER
    contest = contest_of(config, game, model, replay, learner, network, network.policy, candidates, numbers)
    lanes = [(chooser, DEPLOYED), *((chooser, k) for k in range(len(candidates)))]
    j = rollouts(contest, lanes, ROLLOUTS, keys[1]).mean(-1)
    worst = j[1:].argmin()
    holds = j[1 + worst] < j[0]
    metrics = {"J_network": j[0], "J_held": j[1 + worst], "response_holds": holds}
    return learner._replace(held=candidates[worst], holds=holds), metrics


@compiled("config")
def judge(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState,
    output: Gaussian, numbers: SolverNumbers, key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    """J^(o), J^(e), J^(p) of the chosen pair, and J^(p) of the output policy."""
    keys, pair = jax.random.split(key), players(config, game, model, learner, numbers)
    constants = corners(game)[: CONSTANTS // 2] if contested(config) else corners(game)[:0]

    def contest(policy: Gaussian) -> Contest:
        return contest_of(config, game, model, replay, learner, pair, policy, constants, numbers)

    j = bounds(contest(pair.policy), ROLLOUTS, keys[0])
    again = pessimistic(contest(output), ROLLOUTS, keys[1])
    return j | {"J_pessimistic_output": again}


def contest_of(
    config: TrainConfig, game: Game, model: AbstractModel, replay: Replay, learner: ActorCriticState, pair: Pair,
    policy: Gaussian, constants: Float[Array, "k qbar"], numbers: SolverNumbers,
) -> Contest:  # fmt: skip
    """A policy against the adversaries of a pair, in the models that both problems' eta choose.

    Where nobody responds, nobody has learned to be pessimistic: eta then leads to where the agent's critics see less.
    """
    world, value = world_of(game, model, replay, learner, numbers), worth(config, game, model, replay, learner, numbers)

    def eta(net: Perceptron) -> Eta:
        return lambda obs, action, executed, adversary, prediction: world.eta(net, obs, action, adversary)

    def downhill(obs: Array, action: Array, executed: Array, adversary: Array, prediction: Prediction) -> Array:
        later = lambda s: (game.reward(obs, executed, adversary, s) + numbers.discount * value(s)).sum()  # noqa: E731
        return -jnp.sign(jax.grad(later)(prediction.mean))

    own = Answer(world.adversary(learner.agent.networks.adversary))
    return Contest(
        game, model, policy, deployed(config.algo, pair, game), own, constants, eta(learner.agent.networks.eta),
        eta(learner.response.networks.eta) if contested(config) else downhill, world.limits.clip, numbers.beta,
    )  # fmt: skip
