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
from rhucrl.networks.policies import (
    AbstractPolicy,
    Answer,
    Gaussian,
    NetworkOrRule,
    Nobody,
    Normaliser,
    bang_bang,
    held_by,
)
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update
from rhucrl.solvers.actor_critic.problem import Problem, Role, World, observed_limits, observed_rewards, observed_units
from rhucrl.solvers.actor_critic.problem import begin as begin_problem
from rhucrl.solvers.base import AbstractSolver, Pair, SolverNumbers, deployed
from rhucrl.solvers.bounds import DEPLOYED, MEMBER, PESSIMIST, Contest, Eta, bounds, pessimistic, rollouts
from rhucrl.solvers.look_ahead.candidates import lattice

CORNERS = 64  # at most so many extremes of the adversary's box are held
CONSTANTS = 16  # of them, so many are asked what J^(p) is against them, other ones in every episode
RULES = 8  # that are kept, and as many again are bred from them in every episode
ROLLOUTS = 4  # whole episodes from starts of their own, of which each J is the mean


class ActorCriticState(NamedTuple):
    """Both problems, the units in which their networks see states and rewards, and who responds to the agent."""

    agent: Problem
    response: Problem
    normaliser: Normaliser
    rewards: Float[Array, " two"]
    rules: Float[Array, "r qbar f"]
    """Bang-bang feedback that harms the agent in the model: it has been bred against it from episode to episode."""
    rule: Float[Array, "qbar f"]
    """The one (or the extreme that is held) that is the response, where it is worse for the agent than the network."""
    ruled: Bool[Array, ""]
    practised: Int[Array, ""]
    """Real steps that updates have been made for."""


class ActorCriticValue(eqx.Module):
    """V(s) = Q(s, pi(s), pibar(s)) of the agent's problem, the mean of its critics."""

    world: World
    policy: Gaussian
    adversary: Answer | Nobody
    critics: Perceptron

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b"]:
        action = self.policy(obs)
        manner = jnp.float32(isinstance(self.adversary, Nobody))
        return self.world.values(self.critics, obs, action, self.adversary(obs, action), manner).mean(0)


class ActorCriticSolver(AbstractSolver[ActorCriticState]):
    """The agent's problem (`eq:rhucrl:learner`), then the response to the agent that came of it."""

    config: TrainConfig = eqx.field(static=True)
    game: Game

    @property
    def contested(self) -> bool:
        return ALGORITHMS[self.config.algo].opponent and self.config.setting != "none"

    @property
    def corners(self) -> Float[Array, "c qbar"]:
        """Extremes of the adversary's box."""
        return self.game.adversary.place(lattice(self.game.adversary.size, 2)[:CORNERS])

    def held(self, extremes: Float[Array, "k qbar"]) -> Float[Array, "k qbar f"]:
        """The rules that hold these."""
        return held_by(self.game.adversary, extremes, self.game.observation.size + len(self.game.winding))

    def begin(self, keys: PRNGKeyArray) -> ActorCriticState:
        p, its = self.game.observation.size + len(self.game.winding), self.config.solver
        agent, response = (begin_problem(self.game, its.width, its.critics, key) for key in keys)
        units = Normaliser(jnp.zeros(p), jnp.ones(p), self.game.winding)
        several = self.contested and self.game.scope == "step"
        rules = jnp.zeros((RULES if several else 0, self.game.adversary.size, p + 1))
        rule = jnp.zeros((self.game.adversary.size, p + 1))
        return ActorCriticState(agent, response, units, jnp.zeros(2), rules, rule, jnp.bool_(False), jnp.int32(0))

    def players(self, model: AbstractModel, state: ActorCriticState, numbers: SolverNumbers) -> Pair:
        own = ALGORITHMS[self.config.algo].deployed == "own"
        problem, ruled = (state.agent, jnp.bool_(False)) if own else (state.response, state.ruled)
        policy = Gaussian(state.agent.averaged, state.normaliser, self.game.agent)
        network = Gaussian(problem.networks.adversary, state.normaliser, self.game.adversary)
        return Pair(policy, NetworkOrRule(network, state.rule, ruled))

    def improve(
        self, model: AbstractModel, replay: Replay, state: ActorCriticState, numbers: SolverNumbers, keys: PRNGKeyArray
    ) -> tuple[ActorCriticState, dict[str, Array]]:
        """The agent is improved for as many steps as are new, the response once."""
        row, new = ALGORITHMS[self.config.algo], replay.size - state.practised
        low, high = observed_rewards(self.game, replay)
        rewards = jnp.stack([jnp.minimum(low, state.rewards[0]), jnp.maximum(high, state.rewards[1])])
        state = state._replace(
            normaliser=observed_units(self.game, replay), rewards=rewards, practised=jnp.int32(replay.size)
        )
        role, passes = Role(row.agent_eta, self.contested, False), jnp.maximum(new // self.game.horizon, 1)
        agent, losses = solve(self, model, replay, state, state.agent, role, passes, numbers, keys[0])
        state, metrics = state._replace(agent=agent), {f"agent_{name}": x for name, x in losses.items()}
        if not self.contested:
            return state, metrics
        response = state.response._replace(networks=state.response.networks._replace(agent=state.agent.averaged))
        role = Role(row.response_eta, True, True)
        response, losses = solve(self, model, replay, state, response, role, jnp.int32(1), numbers, keys[1])
        state, chosen = respond(self, model, replay, state._replace(response=response), numbers, keys[1])
        return state, metrics | {f"response_{name}": x for name, x in losses.items()} | chosen

    def judge(
        self, model: AbstractModel, replay: Replay, state: ActorCriticState, output: Gaussian,
        numbers: SolverNumbers, key: PRNGKeyArray,
    ) -> dict[str, Array]:  # fmt: skip
        return judged(self, model, replay, state, output, numbers, key)

    def value(
        self, model: AbstractModel, replay: Replay, state: ActorCriticState, numbers: SolverNumbers
    ) -> ActorCriticValue:
        world, problem = world_of(self, model, replay, state, numbers), state.agent
        adversary = Answer(world.adversary(problem.networks.adversary)) if self.contested else Nobody(self.game.neutral)
        return ActorCriticValue(world, world.agent(problem.averaged), adversary, problem.targets)


def world_of(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, state: ActorCriticState, numbers: SolverNumbers
) -> World:
    limits, its = observed_limits(solver.game, replay), solver.config.solver
    grown = jnp.minimum(state.practised / max(its.worst_after * solver.game.horizon, 1), 1.0)
    worst, rules = its.worst * grown, state.rules
    return World(solver.game, model, state.normaliser, limits, state.rewards, numbers.discount, worst, rules)


@compiled("role")
def solve(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, state: ActorCriticState, problem: Problem,
    role: Role, passes: Int[Array, ""], numbers: SolverNumbers, key: PRNGKeyArray,
) -> tuple[Problem, dict[str, Array]]:  # fmt: skip
    """The gradient steps of so many episodes for one problem, and how the last episode's went."""
    world = world_of(solver, model, replay, state, numbers)

    def episode(i: Array, so_far: tuple[Problem, dict]) -> tuple[Problem, dict]:
        its, steps = solver.config.solver, jax.random.fold_in(key, i)
        return update.improve(world, so_far[0], replay, solver.corners, role, its, numbers, steps)

    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(episode, 0, (problem, {}))[1])
    return jax.lax.fori_loop(0, passes, episode, (problem, nothing))


@compiled()
def respond(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, state: ActorCriticState, numbers: SolverNumbers,
    key: PRNGKeyArray,
) -> tuple[ActorCriticState, dict[str, Array]]:  # fmt: skip
    """The minimiser of J^(p)(pi_t, .) (`eq:rhucrl:adversary`) among the network, extremes that are held, and bang-bang
    feedback, whose worst rules stay and are varied in the next episode."""
    keys, pair = jax.random.split(key, 3), solver.players(model, state._replace(ruled=jnp.bool_(False)), numbers)
    held = jax.random.permutation(keys[0], solver.corners)[:CONSTANTS]
    bred = jnp.concatenate([state.rules, varied(state.rules, keys[2])])
    rules = jnp.concatenate([bred, solver.held(held)])
    chooser = PESSIMIST if ALGORITHMS[solver.config.algo].response_eta else MEMBER
    contest = contest_of(solver, model, replay, state, pair, pair.policy, rules, numbers)
    lanes = [(chooser, DEPLOYED), *((chooser, k) for k in range(len(rules)))]
    network, *others = rollouts(contest, lanes, ROLLOUTS, keys[1]).mean(-1)
    others = jnp.stack(others)
    worst, ruled = others.argmin(), others.min() < network
    metrics = {"J_network": network, "J_held": others[len(bred) :].min(), "response_rule": ruled}
    state = state._replace(rule=rules[worst], ruled=ruled)
    if len(bred):
        metrics["J_bred"] = others[: len(bred)].min()
        state = state._replace(rules=bred[jnp.argsort(others[: len(bred)])[: len(state.rules)]])
    return state, metrics


def varied(rules: Float[Array, "r qbar f"], key: PRNGKeyArray) -> Float[Array, "r qbar f"]:
    """From each rule another one: half of them a little different, the others new, by few of the state's entries."""
    keys = jax.random.split(key, 3)
    new, f = jax.random.normal(keys[0], rules.shape), rules.shape[-1]
    few = jax.random.uniform(keys[1], rules.shape) < max(0.3, 2 / f)
    fresh = (jnp.arange(len(rules)) % 2 == 0)[:, None, None] | (rules == 0).all((-2, -1), keepdims=True)
    return jnp.where(fresh, new * few.at[..., -1].set(True), rules + 0.5 * new * few)


@compiled()
def judged(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, state: ActorCriticState, output: Gaussian,
    numbers: SolverNumbers, key: PRNGKeyArray,
) -> dict[str, Array]:  # fmt: skip
    """J^(o), J^(e), J^(p) of the players, and J^(p) of the output policy."""
    keys, pair = jax.random.split(key), solver.players(model, state, numbers)
    corners = solver.corners[: CONSTANTS // 2 if solver.contested else 0]
    rules = jnp.concatenate([solver.held(corners), state.rules])

    def contest(policy: AbstractPolicy) -> Contest:
        return contest_of(solver, model, replay, state, pair, policy, rules, numbers)

    again = pessimistic(contest(output), ROLLOUTS, keys[1])
    return bounds(contest(pair.policy), ROLLOUTS, keys[0]) | {"J_pessimistic_output": again}


def contest_of(
    solver: ActorCriticSolver, model: AbstractModel, replay: Replay, state: ActorCriticState, pair: Pair,
    policy: AbstractPolicy, rules: Float[Array, "k qbar f"], numbers: SolverNumbers,
) -> Contest:  # fmt: skip
    """A policy against the adversaries of a pair, in the models that both problems' eta choose.

    Where nobody responds, nobody has learned to be pessimistic: eta then leads to where the agent's critics see less.
    """
    game, value = solver.game, solver.value(model, replay, state, numbers)
    world = value.world

    def eta(net: Perceptron) -> Eta:
        return lambda obs, action, executed, adversary, prediction: world.eta(net, obs, action, adversary)

    def downhill(obs: Array, action: Array, executed: Array, adversary: Array, prediction: Prediction) -> Array:
        later = lambda s: (game.reward(obs, executed, adversary, s) + numbers.discount * value(s)).sum()  # noqa: E731
        return -jnp.sign(jax.grad(later)(prediction.mean))

    def by_rule(which: Array, obs: Array) -> Array:
        return bang_bang(rules[which], world.normaliser, game.adversary, obs)

    optimist, pessimist = eta(state.agent.networks.eta), eta(state.response.networks.eta)
    own = Answer(world.adversary(state.agent.networks.adversary))
    return Contest(
        game, model, policy, deployed(solver.config.algo, pair, game), own, len(rules), by_rule, optimist,
        pessimist if solver.contested else downhill, world.limits.clip, numbers.beta,
    )  # fmt: skip
