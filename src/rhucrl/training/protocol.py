"""The protocol (`alg:R-HUCRL_protocol`): select, play, add, update; output the best policy by J^(p)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl import replay as store
from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.learner import AbstractLearner
from rhucrl.models import calibration, ensemble, known
from rhucrl.models.base import AbstractModel
from rhucrl.models.gaussian_process import model as gaussian_process
from rhucrl.play import Episode, acting, play_in_jax, play_on_host
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled
from rhucrl.runtime.timing import timed
from rhucrl.solvers.actor_critic.solver import ActorCriticSolver
from rhucrl.solvers.base import AbstractSolver, Players, SolverNumbers, Value, deployed, training_env
from rhucrl.solvers.look_ahead.backup import unit
from rhucrl.solvers.look_ahead.solver import LookAheadSolver
from rhucrl.solvers.planner.solver import PlannerSolver
from rhucrl.training import theory_log

TIE = 0.05  # a difference in J^(p) or returns that says nothing, in units of the critics: the later policy is output
HEADS = 5  # bootstrap weights of a transition that no ensemble is fitted to
THEORY = ("norm", "delta", "epsilon", "lipschitz", "oracle")  # options that no program depends on
MODELS = {"ensemble": ensemble.create, "gp": gaussian_process.create, "known": known.create}
SOLVERS: dict[str, Callable[[TrainConfig, Game], AbstractSolver]] = {
    "look-ahead": LookAheadSolver, "actor-critic": ActorCriticSolver, "planner": PlannerSolver,
}  # fmt: skip


class Output(NamedTuple):
    """A policy that a run may give back (`eq:rhucrl:output`), and what speaks for it."""

    players: Players
    bound: Float[Array, ""]
    """Its J^(p); by the robust rule the lowest that any episode since has given it."""
    earned: Float[Array, ""]
    """By the robust rule the best real return of the policies that J^(p) could not tell from it."""
    episode: Array


class TrainingState(NamedTuple):
    """Everything that a run needs to go on, bit for bit."""

    model: AbstractModel
    model_optimiser: Any
    """The ensemble's optimiser; a Gaussian process' memory."""
    learner: Any
    replay: Replay
    last: Players
    robust: Output
    literal: Output
    """What either rule has chosen so far."""


def solver_of(config: TrainConfig, game: Game) -> AbstractSolver:
    return SOLVERS[config.solver.kind](config, game)


def numbers(config: TrainConfig, episode: int) -> SolverNumbers:
    given = vars(config.solver)
    if given["beta"] == "theory":  # beta_t is then in the model's own deviation
        given = given | {"beta": 1.0}
    if "slowing" in given:
        given = given | {"learning_rate": given["learning_rate"] / (1 + given["slowing"] * episode)}
    return SolverNumbers(*(jnp.float32(given.get(name, 0.0)) for name in SolverNumbers._fields))


def programs(config: TrainConfig) -> TrainConfig:
    """What the compiled programs depend on: runs of other seeds, lengths and strengths share them."""
    model, solver = config.model, dataclasses.replace(config.solver, beta=1.0)
    if model.kind == "gp":
        model = dataclasses.replace(model, **{name: getattr(type(model), name) for name in THEORY})
    plain = {"seed": 0, "episodes": 1, "random_episodes": 1, "strength": None, "output_rule": "robust"}
    return dataclasses.replace(config, **plain, model=model, solver=solver)


def value(config: TrainConfig, game: Game, state: TrainingState) -> Value:
    """The critic of the agent's problem, as a batched function of observations."""
    return solver_of(config, game).value(state.model, state.replay, state.learner, numbers(config, 0))


def select(
    config: TrainConfig, game: Game, state: TrainingState, numbers: SolverNumbers, key: PRNGKeyArray
) -> tuple[TrainingState, dict]:
    """Solve both problems in the current model (`eq:rhucrl`), and estimate J of what came out."""
    keys, solver = jax.random.split(key, 3), solver_of(config, game)
    here = state.model, state.replay
    learner, losses = timed("solving", solver.improve, *here, state.learner, numbers, keys[:2])
    j = timed("evaluating", solver.judge, *here, learner, state.robust.players.policy, numbers, keys[2])
    pair = solver.players(state.model, learner, numbers)
    return state._replace(learner=learner, last=pair), j | losses


def choose_outputs(
    config: TrainConfig, game: Game, state: TrainingState, index: int, j: dict, earned: Array
) -> TrainingState:
    """Whether the policy that has just played becomes the output (`eq:rhucrl:output`), by either rule.

    The paper's is literal: the largest J^(p) that any policy had in its episode.
    """
    new, old = Output(state.last, j["J_pessimistic"], earned, jnp.int32(index)), state.literal
    robust = robust_choice(config, game, state.robust, new, j["J_pessimistic_output"])
    return state._replace(robust=robust, literal=new if new.bound > old.bound else old)


def robust_choice(config: TrainConfig, game: Game, old: Output, new: Output, again: Array) -> Output:
    """The new policy, unless it is clearly worse than the old one, whose J^(p) is `again` by now.

    The old policy's bound is the lowest J^(p) that any episode's model and adversaries gave it: an estimate of one
    episode is too high where its adversaries were weak, and a maximum over episodes would look for such episodes.
    Of policies that J^(p) cannot tell apart, real returns decide: no worst case is better than what was earned. (Alone
    they would speak for the policy that has met the weakest adversary.) Where nobody plays against the agent, they are
    what J estimates, and decide alone.
    """
    tie = TIE * unit(game)
    bound = jnp.minimum(old.bound, again)
    better, best = new.bound - bound, new.earned
    alone = config.setting == "none" or ALGORITHMS[config.algo].deployed == "none"
    if alone or jnp.abs(better) <= tie:
        better, best = new.earned - old.earned, jnp.maximum(new.earned, old.earned)
    return old._replace(bound=bound) if better < -tie else new._replace(earned=best)


def play(config: TrainConfig, env: ZeroSumEnv, state: TrainingState, explore: bool, key: PRNGKeyArray) -> Episode:
    """One episode on the real system with the selected pair (`explore`: with random actions), both fixed."""
    policy, opponent = state.last.policy, deployed(config.algo, state.last, env.game)
    if isinstance(env.game, JaxGame):
        return play_in_jax(env.game, policy, opponent, explore, key)
    return play_on_host(env, None if explore else partial(acting, policy, opponent), key)


def learn(
    config: TrainConfig, state: TrainingState, episode: Episode, beta: Array, key: PRNGKeyArray
) -> tuple[TrainingState, dict]:
    """Add the episode to the replay, and update the model."""
    keys = jax.random.split(key)
    replay, foreseen = add(state.model, state.replay, episode, beta, keys[0])
    model, memory, fitted = state.model.update(config, state.model_optimiser, replay, keys[1])
    state = state._replace(model=model, model_optimiser=memory, replay=replay)
    return state, dict(sorted((foreseen | fitted).items()))


@compiled()
def add(
    model: AbstractModel, replay: Replay, episode: Episode, beta: Array, key: PRNGKeyArray
) -> tuple[Replay, dict[str, Array]]:
    """The replay with the new data, and how well the model foresaw them."""
    transitions, count, _ = episode
    begun = jnp.arange(transitions.obs.shape[0]) < count
    real = (begun & ~model.game.over(transitions.obs)).astype(jnp.float32)  # what comes after an end is never imagined
    count = real.sum().astype(jnp.int32)
    prediction = model.predict(*transitions[:3])
    covered = calibration.coverage(prediction, transitions.following, beta, real)
    metrics = {"coverage_confidence": covered.confidence, "coverage_predictive": covered.predictive}
    error = jnp.square(prediction.mean - transitions.following)
    metrics |= {"one_step_error": jnp.sqrt((real @ error.mean(-1)) / count)}
    order = jnp.argsort(-real)  # a stable one: what is real comes first
    return store.add(replay, jax.tree.map(lambda x: x[order], transitions), count, key), metrics


class ModelBased(AbstractLearner[TrainingState]):
    """The protocol (`alg:R-HUCRL_protocol`): select, play, add, update."""

    config: TrainConfig = eqx.field(static=True)

    def initial(self, env: ZeroSumEnv) -> TrainingState:
        config = self.config
        game, key = training_env(config, env).game, jax.random.key(config.seed)
        build = compiled("capacity", often=False)(ModelBased.fresh)
        return build(ModelBased(programs(config)), game, config.episodes * game.horizon, key)

    def fresh(self, game: Game, capacity: int, key: PRNGKeyArray) -> TrainingState:
        config = self.config
        keys = jax.random.split(key, 3)
        p, q, qbar = game.predicted_size, game.agent.size, game.adversary.size
        solver = solver_of(config, game)
        learner = solver.begin(keys[:2])
        model, memory = MODELS[config.model.kind](config, game, keys[2])
        replay = store.empty(capacity, (p, q, qbar), getattr(config.model, "heads", HEADS))
        pair = solver.players(model, learner, numbers(config, 0))
        nothing = Output(pair, jnp.float32(-jnp.inf), jnp.float32(-jnp.inf), jnp.int32(-1))
        return TrainingState(model, memory, learner, replay, pair, nothing, nothing)

    def policies(self, state: TrainingState) -> dict[str, tuple[Players, Array]]:
        """The output, and what the other rule would have chosen."""
        chosen = {"robust": state.robust, "paper": state.literal}
        output = chosen.pop(self.config.output_rule)
        return {"policy": (output.players, output.episode)} | {
            f"policy-{rule}": (its.players, its.episode) for rule, its in chosen.items()
        }

    def episode(self, env: ZeroSumEnv, state: TrainingState, index: int) -> tuple[TrainingState, dict]:
        env = training_env(self.config, env)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(self.config.seed), index), 3)
        explore = index < self.config.random_episodes
        n, config = numbers(self.config, index), programs(self.config)
        metrics: dict = {"episode": index}
        if not explore:
            state, selected = select(config, env.game, state, n, keys[0])
            metrics |= selected
        played = timed("collecting", play, config, env, state, explore, keys[1])
        if not explore:
            state = choose_outputs(config, env.game, state, index, metrics, played.earned)
            metrics |= {"output_bound": state.robust.bound, "output_return": state.robust.earned}
        metrics |= {"return": played.earned, "steps": played.count}
        state, learned = timed("fitting", learn, config, state, played, n.beta, keys[2])
        metrics |= learned
        if config.model.kind == "gp":
            state, bounds = timed("fitting", theory_log.write, self.config, state, None if explore else played.earned)
            metrics |= bounds
        chosen = {"robust": state.robust.episode, "paper": state.literal.episode}
        metrics |= {"output_episode": chosen[self.config.output_rule]}
        metrics |= {f"output_episode_{rule}": episode for rule, episode in chosen.items()}
        return state, {name: x.item() if hasattr(x, "item") else x for name, x in metrics.items()}
