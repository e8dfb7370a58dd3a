"""The protocol (`alg:R-HUCRL_protocol`): select, play, add, fit, calibrate; keep the best policy by J^(p)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl import replay as store
from rhucrl.algorithms import ALGORITHMS
from rhucrl.compilation import compiled
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Box, Game, demand_jax
from rhucrl.envs.game import play as play_step
from rhucrl.models import calibration, ensemble
from rhucrl.models.known import KnownModel
from rhucrl.models.prediction import Model
from rhucrl.replay import Replay, Transitions
from rhucrl.solvers import value_iteration
from rhucrl.solvers.backup import Numbers, unit, value
from rhucrl.solvers.bounds import bounds, pessimistic
from rhucrl.solvers.candidates import adversary_candidates, agent_candidates
from rhucrl.solvers.critic import Critic
from rhucrl.solvers.policies import AdversaryPolicy, AgentPolicy, Player
from rhucrl.solvers.value_iteration import Proposals, Values

PERTURBATION = 0.4  # largest standard deviation of replayed start states, in units of the observation's scale
TIE = (
    0.05  # a later policy whose J^(p) is lower by no more than this, in units of the critics, is as good: it is output
)
HOLD = 10  # steps for which a random action of the first episodes is held

Opponent = Callable[[Array, Array], Array]


class Pair(NamedTuple):
    """(pi_t, pibar_t): the agent and the response to it."""

    policy: AgentPolicy
    response: AdversaryPolicy


class State(NamedTuple):
    """Everything that a run needs to go on, bit for bit."""

    model: Model
    model_optimiser: optax.OptState
    agent: Values
    response: Values
    replay: Replay
    last: Pair
    output: Pair
    output_bound: Float[Array, ""]
    output_episode: Array


def training_game(config: TrainConfig, game: Game) -> Game:
    """An algorithm without an opponent learns on the nominal system."""
    return game if ALGORITHMS[config.algo].opponent else game.nominal()


def numbers(config: TrainConfig, episode: int) -> Numbers:
    rate = config.learning_rate / (1 + episode / 8)
    parts = (config.beta, config.discount, config.trace, rate, config.target_rate, config.average_rate)
    return Numbers(*(jnp.float32(x) for x in parts))


def initial(config: TrainConfig, game: Game) -> State:
    """The state before the first episode."""
    game, key = training_game(config, game), jax.random.key(config.seed)
    build = compiled("config", "capacity", often=False)(fresh)
    return build(programs(config), game, config.episodes * game.horizon, key)


def programs(config: TrainConfig) -> TrainConfig:
    """What the compiled programs depend on: runs of other seeds, lengths and strengths share them."""
    return dataclasses.replace(config, seed=0, episodes=1, random_episodes=1, strength=None, beta=1.0)


def fresh(config: TrainConfig, game: Game, capacity: int, key: PRNGKeyArray) -> State:
    keys = jax.random.split(key, 3)
    p, q, qbar = game.observation.size, game.agent.size, game.adversary.size
    inputs = p + (qbar if game.scope == "episode" else 0)
    critics = [Critic(inputs, config.features, config.width, config.frequency, k) for k in keys[:2]]
    if config.model == "known":
        model, optimiser = KnownModel(game), ()
    else:
        model = ensemble.create(game, config.heads, config.model_width, keys[2])
        optimiser = ensemble.optimiser(jnp.float32(0)).init(eqx.filter(model.heads, eqx.is_array))
    agent, response = (value_iteration.start(critic) for critic in critics)
    replay = store.empty(capacity, (p, q, qbar), config.heads)
    pair = players(config, game, model, agent, response, numbers(config, 0))
    return State(model, optimiser, agent, response, replay, pair, pair, jnp.float32(-jnp.inf), jnp.int32(-1))


def players(config: TrainConfig, game: Game, model: Model, agent: Values, response: Values, numbers: Numbers) -> Pair:
    """The policies that the critics stand for."""
    row = ALGORITHMS[config.algo]
    adversary = adversary_candidates(game, row.opponent)
    mine = Player(game, model, agent.average, jnp.float32(row.agent_eta), numbers, adversary)
    theirs = Player(game, model, response.average, jnp.float32(row.response_eta), numbers, adversary)
    return Pair(AgentPolicy(mine, agent_candidates(game.agent, config.acting_points)), AdversaryPolicy(theirs))


def deployed(config: TrainConfig, pair: Pair) -> Opponent:
    """The adversary that plays the real episodes: the response, that of the agent's own problem, or nobody."""
    choice, game = ALGORITHMS[config.algo].deployed, pair.policy.player.game
    if choice == "none":
        return lambda obs, action: jnp.broadcast_to(game.neutral, (*obs.shape[:-1], game.adversary.size))
    return pair.response if choice == "response" else AdversaryPolicy(pair.policy.player)


def select(config: TrainConfig, game: Game, state: State, numbers: Numbers, key: PRNGKeyArray) -> tuple[State, dict]:
    """Solve both problems in the current model (`eq:rhucrl`) and bound the performance of the chosen pair."""
    keys = jax.random.split(key, 3)
    agent, agent_loss = solve_agent(config, game, state, numbers, keys[0])
    state = state._replace(agent=agent)
    response, response_loss = solve_response(config, game, state, numbers, keys[1])
    state = state._replace(response=response)
    metrics = judge(config, game, state, numbers, keys[2])
    return state, metrics | {"agent_loss": agent_loss, "response_loss": response_loss}


@compiled("config")
def solve_agent(
    config: TrainConfig, game: Game, state: State, numbers: Numbers, key: PRNGKeyArray
) -> tuple[Values, Array]:
    """The agent's problem, `eq:rhucrl:learner`: every candidate is considered."""
    candidates = agent_candidates(game.agent, config.agent_points)

    def proposals(obs: Array) -> Array:
        return jnp.broadcast_to(candidates, (*obs.shape[:-1], *candidates.shape))

    sign = ALGORITHMS[config.algo].agent_eta
    return solve(config, game, state, state.agent, proposals, sign, config.pool, numbers, key)


@compiled("config")
def solve_response(
    config: TrainConfig, game: Game, state: State, numbers: Numbers, key: PRNGKeyArray
) -> tuple[Values, Array]:
    """The adversary's problem, `eq:rhucrl:adversary`: the agent's action is the chosen policy's."""
    policy = players(config, game, state.model, state.agent, state.response, numbers).policy

    def proposals(obs: Array) -> Array:
        return policy(obs)[..., None, :]

    sign = ALGORITHMS[config.algo].response_eta
    return solve(config, game, state, state.response, proposals, sign, config.pool // 8, numbers, key)


def solve(
    config: TrainConfig, game: Game, state: State, values: Values, proposals: Proposals, sign: int, pool: int,
    numbers: Numbers, key: PRNGKeyArray,
) -> tuple[Values, Array]:  # fmt: skip
    """All gradient steps of an episode for one problem."""
    keys = jax.random.split(key, 3)
    adversary = adversary_candidates(game, ALGORITHMS[config.algo].opponent)
    starts = start_states(config, game, state.replay, pool, keys[0])
    rollouts = value_iteration.rollouts(
        game, state.model, values.target, starts, proposals, adversary, jnp.float32(sign), numbers,
        config.model_steps, keys[1],
    )  # fmt: skip
    updates = round(config.updates * game.horizon)
    return value_iteration.improve(
        game, values, rollouts, adversary, jnp.float32(sign), numbers, config.batch, updates, keys[2]
    )


@compiled("config")
def judge(config: TrainConfig, game: Game, state: State, numbers: Numbers, key: PRNGKeyArray) -> dict[str, Array]:
    """J^(o), J^(e), J^(p) of the chosen pair, what both critics say about the start, and the output policy's bound.

    That bound is the lowest J^(p) that any episode's model and adversaries gave the policy: an estimate of one episode
    is too high where its adversaries were weak, and a maximum over episodes would look for such episodes.
    """
    pair = players(config, game, state.model, state.agent, state.response, numbers)
    keys = jax.random.split(key)
    j = bounds(*pair, deployed(config, pair), state.model, keys[0])
    champion = pessimistic(state.output.policy, pair.response, deployed(config, pair), state.model, keys[1])
    origin = pair.policy.player.origin()
    return {
        "J_optimistic": j.optimistic, "J_expected": j.expected, "J_pessimistic": j.pessimistic,
        "output_bound": jnp.minimum(state.output_bound, champion),
        "agent_value": value(game, state.agent.critic, origin, game.neutral),
        "response_value": value(game, state.response.critic, origin, game.neutral),
    }  # fmt: skip


def start_states(config: TrainConfig, game: Game, replay: Replay, n: int, key: PRNGKeyArray) -> Float[Array, "n p"]:
    """Where model rollouts start: anywhere, and near what was seen."""
    keys = jax.random.split(key, 4)
    broad = round(config.broad * n)
    seen = replay.data.obs[store.draw(replay, n - broad, keys[1])]
    spread = jax.random.uniform(keys[3], (n - broad, 1), maxval=PERTURBATION)
    seen = game.project(seen + spread * game.scale * jax.random.normal(keys[2], seen.shape))
    return jnp.concatenate([game.sample(keys[0], broad), seen])


@compiled("config", "explore", often=False)
def play(
    config: TrainConfig, game: Game, state: State, numbers: Numbers, explore: bool, key: PRNGKeyArray
) -> tuple[Transitions, Array]:
    """One episode on the real system with the selected pair (`explore`: with random actions), both fixed."""
    game = demand_jax(game)
    pair = players(config, game, state.model, state.agent, state.response, numbers)
    policy, opponent = pair.policy, deployed(config, pair)
    keys = jax.random.split(key, 4)

    def wander(box: Box, key: PRNGKeyArray) -> Array:
        return box.place(jax.random.uniform(key, (box.size,), minval=-1.0))

    def step(system: Array, time: Array):
        obs = game.observe(system)
        if explore:
            action = wander(game.agent, jax.random.fold_in(keys[1], time // HOLD))
            change = time // HOLD if game.scope == "step" else 0
            adversary = wander(game.adversary, jax.random.fold_in(keys[2], change))
        else:
            action = policy(obs)
            adversary = opponent(obs, action)
        played = play_step(game, system, action, adversary, jax.random.fold_in(keys[3], time))
        row = Transitions(obs, played.executed, adversary, game.observe(played.state))
        return played.state, (row, played.reward)

    _, (transitions, rewards) = jax.lax.scan(step, game.reset(keys[0]), jnp.arange(game.horizon))
    return transitions, rewards.sum()


@compiled("config")
def learn(
    config: TrainConfig, state: State, transitions: Transitions, beta: Array, key: PRNGKeyArray
) -> tuple[State, dict]:
    """Judge the model on the new data, add them, refit and recalibrate."""
    keys = jax.random.split(key)
    prediction = state.model.predict(*transitions[:3])
    covered = calibration.coverage(prediction, transitions.following, beta)
    metrics = {"coverage_confidence": covered.confidence, "coverage_predictive": covered.predictive}
    metrics |= {"one_step_error": jnp.sqrt(jnp.square(prediction.mean - transitions.following).mean())}
    replay = store.add(state.replay, transitions, keys[0])
    if isinstance(state.model, KnownModel):
        return state._replace(replay=replay), metrics
    model, optimiser, fit = ensemble.fit(
        eqx.tree_at(lambda m: m.temperature, state.model, jnp.float32(1)), state.model_optimiser, replay,
        config.model_rounds, 25, 256, jnp.float32(config.model_learning_rate), keys[1],
    )  # fmt: skip
    held_out = replay.held_out * replay.filled
    fitted = model.predict(*replay.data[:3])
    temperature = calibration.temperature(fitted, replay.data.following, held_out)
    model = eqx.tree_at(lambda m: m.temperature, model, jnp.maximum(temperature, config.minimum_temperature))
    metrics |= {"temperature": temperature, "fit_steps": fit.steps, "validation_error": jnp.sqrt(fit.validation_mse)}
    return state._replace(model=model, model_optimiser=optimiser, replay=replay), metrics


def episode(config: TrainConfig, game: Game, state: State, index: int) -> tuple[State, dict]:
    """Episode `index`: from the state before it to the state after it, and what there is to say about it."""
    game = training_game(config, game)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index), 3)
    explore = index < config.random_episodes
    n, config = numbers(config, index), programs(config)
    metrics: dict = {"episode": index}
    if not explore:
        state, selected = select(config, game, state, n, keys[0])
        metrics |= selected
        pair = players(config, game, state.model, state.agent, state.response, n)
        state = state._replace(last=pair)
        tie = TIE * unit(game)
        if selected["J_pessimistic"] >= selected["output_bound"] - tie:  # eq:rhucrl:output
            bound = selected["J_pessimistic"]
            state = state._replace(output=pair, output_bound=bound, output_episode=jnp.int32(index))
        else:
            state = state._replace(output_bound=selected["output_bound"])
    transitions, earned = play(config, game, state, n, explore, keys[1])
    metrics["return"] = earned
    state, learned = learn(config, state, transitions, n.beta, keys[2])
    metrics |= learned | {"output_episode": state.output_episode}
    if not explore:
        metrics["output_bound"] = state.output_bound
    return state, {name: x.item() if hasattr(x, "item") else x for name, x in metrics.items()}
