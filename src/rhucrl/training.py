"""The protocol (`alg:R-HUCRL_protocol`): select, play, add, fit, calibrate; keep the best policy by J^(p)."""

from __future__ import annotations

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl import replay as store
from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game, draw
from rhucrl.models import calibration, ensemble
from rhucrl.models.known import KnownModel
from rhucrl.models.prediction import Model
from rhucrl.replay import Replay, Transitions
from rhucrl.solvers import value_iteration
from rhucrl.solvers.backup import Numbers, value
from rhucrl.solvers.bounds import bounds
from rhucrl.solvers.candidates import adversary_candidates, agent_candidates
from rhucrl.solvers.critic import Critic
from rhucrl.solvers.policies import AdversaryPolicy, AgentPolicy, Player
from rhucrl.solvers.value_iteration import Values

PERTURBATION = 0.1  # of replayed start states, in units of the observation's scale
HOLD = 10  # steps for which a random action of the first episodes is held
DEPLOYED = {"response": 0, "own": 1, "none": 2}


class State(NamedTuple):
    """Everything that a run needs to go on, bit for bit."""

    model: Model
    model_optimiser: optax.OptState
    agent: Values
    response: Values
    replay: Replay
    output: AgentPolicy
    output_bound: Float[Array, ""]
    output_episode: Array


def training_game(config: TrainConfig, game: Game) -> Game:
    """An algorithm without an opponent learns on the nominal system."""
    return game if ALGORITHMS[config.algo].opponent else game.nominal()


def numbers(config: TrainConfig, episode: int) -> Numbers:
    rate = config.learning_rate / (1 + episode / 8)
    parts = (config.beta, config.discount, config.trace, rate, config.target_rate)
    return Numbers(*(jnp.float32(x) for x in parts))


def initial(config: TrainConfig, game: Game) -> State:
    keys = jax.random.split(jax.random.key(config.seed), 3)
    game = training_game(config, game)
    p, q, qbar = game.observation.size, game.agent.size, game.adversary.size
    inputs = p + (qbar if game.scope == "episode" else 0)
    critics = [Critic(inputs, config.features, config.width, config.frequency, k) for k in keys[:2]]
    if config.model == "known":
        model, optimiser = KnownModel(game), ()
    else:
        model = ensemble.create(game, config.heads, config.model_width, keys[2])
        optimiser = ensemble.optimiser(jnp.float32(0)).init(eqx.filter(model.heads, eqx.is_array))
    agent, response = (value_iteration.start(critic) for critic in critics)
    replay = store.empty(config.episodes * game.horizon, (p, q, qbar), config.heads)
    policy, _ = players(config, game, model, agent, response, numbers(config, 0))
    return State(model, optimiser, agent, response, replay, policy, jnp.float32(-jnp.inf), jnp.int32(-1))


def players(
    config: TrainConfig, game: Game, model: Model, agent: Values, response: Values, numbers: Numbers
) -> tuple[AgentPolicy, AdversaryPolicy]:
    """pi_t of the agent's problem and pibar_t of the response to it."""
    row = ALGORITHMS[config.algo]
    adversary = adversary_candidates(game.adversary, game.neutral, row.opponent)
    mine = Player(game, model, agent.target, jnp.float32(row.agent_eta), numbers, adversary)
    theirs = Player(game, model, response.target, jnp.float32(row.response_eta), numbers, adversary)
    return AgentPolicy(mine, agent_candidates(game.agent, config.acting_points)), AdversaryPolicy(theirs)


@functools.partial(jax.jit, static_argnames="config")
def select(config: TrainConfig, game: Game, state: State, numbers: Numbers, key: PRNGKeyArray) -> tuple[State, dict]:
    """Solve both problems in the current model (`eq:rhucrl`) and bound the performance of the chosen pair."""
    keys = jax.random.split(key, 7)
    row = ALGORITHMS[config.algo]
    adversary = adversary_candidates(game.adversary, game.neutral, row.opponent)
    learning = agent_candidates(game.agent, config.agent_points)
    updates = round(config.updates * game.horizon)

    def solve(values: Values, proposals, sign: int, keys) -> tuple[Values, Array]:
        starts = start_states(config, game, state.replay, keys[0])
        pool = value_iteration.rollouts(
            game, state.model, values.target, starts, proposals, adversary, jnp.float32(sign), numbers,
            config.model_steps, keys[1],
        )  # fmt: skip
        return value_iteration.improve(
            game, values, pool, adversary, jnp.float32(sign), numbers, config.batch, updates, keys[2]
        )

    agent, agent_loss = solve(
        state.agent, lambda obs: jnp.broadcast_to(learning, (*obs.shape[:-1], *learning.shape)), row.agent_eta, keys[:3]
    )
    policy, _ = players(config, game, state.model, agent, state.response, numbers)
    response, response_loss = solve(state.response, lambda obs: policy(obs)[..., None, :], row.response_eta, keys[3:6])
    policy, adversary_policy = players(config, game, state.model, agent, response, numbers)
    j = bounds(policy, adversary_policy, jnp.int32(DEPLOYED[row.deployed]), keys[6])
    origin = policy.player.origin()
    metrics = {
        "J_optimistic": j.optimistic, "J_expected": j.expected, "J_pessimistic": j.pessimistic,
        "agent_loss": agent_loss, "response_loss": response_loss,
        "agent_value": value(game, agent.critic, origin, game.neutral),
        "response_value": value(game, response.critic, origin, game.neutral),
    }  # fmt: skip
    return state._replace(agent=agent, response=response), metrics


def start_states(config: TrainConfig, game: Game, replay: Replay, key: PRNGKeyArray) -> Float[Array, "n p"]:
    """Where model rollouts start: anywhere, and near what was seen."""
    keys = jax.random.split(key, 3)
    broad = round(config.broad * config.pool)
    seen = replay.data.obs[store.draw(replay, config.pool - broad, keys[1])]
    seen = game.project(seen + PERTURBATION * game.scale * jax.random.normal(keys[2], seen.shape))
    return jnp.concatenate([game.sample(keys[0], broad), seen])


@functools.partial(jax.jit, static_argnames=("config", "explore"))
def play(
    config: TrainConfig, game: Game, state: State, numbers: Numbers, explore: bool, key: PRNGKeyArray
) -> tuple[Transitions, Array]:
    """One episode on the real system with the selected pair (`explore`: with random actions), both fixed."""
    policy, response = players(config, game, state.model, state.agent, state.response, numbers)
    deployed = ALGORITHMS[config.algo].deployed
    opponent = {"response": response, "own": AdversaryPolicy(policy.player), "none": None}[deployed]
    reset, noise = jax.random.split(key)

    def step(system: Array, time: Array):
        keys = jax.random.split(jax.random.fold_in(noise, time // HOLD), 2)
        obs = game.observe(system)
        if explore:
            action = game.agent.place(jax.random.uniform(keys[0], (game.agent.size,), minval=-1.0))
            spot = jax.random.fold_in(keys[1], 0 if game.scope == "step" else -(time // HOLD))
            adversary = game.adversary.place(jax.random.uniform(spot, (game.adversary.size,), minval=-1.0))
        else:
            action = policy(obs)
            adversary = game.neutral if opponent is None else opponent(obs, action)
        executed = draw(game.execute(action, adversary), jax.random.fold_in(noise, game.horizon + time))
        following = game.step(system, executed, adversary)
        after = game.observe(following)
        return following, (Transitions(obs, executed, adversary, after), game.reward(obs, executed, adversary, after))

    _, (transitions, rewards) = jax.lax.scan(step, game.reset(reset), jnp.arange(game.horizon))
    return transitions, rewards.sum()


@functools.partial(jax.jit, static_argnames="config")
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
    n = numbers(config, index)
    metrics: dict = {"episode": index}
    if not explore:
        state, selected = select(config, game, state, n, keys[0])
        metrics |= selected
        policy, _ = players(config, game, state.model, state.agent, state.response, n)
        if float(selected["J_pessimistic"]) >= float(state.output_bound):
            state = state._replace(
                output=policy, output_bound=selected["J_pessimistic"], output_episode=jnp.int32(index)
            )
    transitions, earned = play(config, game, state, n, explore, keys[1])
    metrics["return"] = earned
    state, learned = learn(config, state, transitions, n.beta, keys[2])
    metrics |= learned | {"output_episode": state.output_episode}
    return state, {name: x.item() if hasattr(x, "item") else x for name, x in metrics.items()}
