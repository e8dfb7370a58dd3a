"""Off-policy algorithms as a protocol: every step of an episode is remembered, and learned from before the next few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from rhucrl.algorithms import MODEL_FREE
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.learner import AbstractLearner
from rhucrl.model_free import sac
from rhucrl.model_free.sac import ReplayMemory, SACLearner, SACOptions, SACPlayer
from rhucrl.play import seed_of, steps
from rhucrl.runtime.timing import timed
from rhucrl.solvers.base import Pair, gaussian_pair, training_env

PATIENCE = 10  # of AR-DDPG: the agent's updates for each one of the adversary


class OffPolicyState(NamedTuple):
    """Everything that a run needs to go on, bit for bit."""

    learner: SACLearner
    replay: ReplayMemory
    last: Pair
    output: Pair
    output_episode: Array


def players_of(config: TrainConfig, game: Game) -> tuple[SACPlayer, ...]:
    agent, adversary = SACPlayer(game.agent.size, 1), SACPlayer(game.adversary.size, -1)
    return (agent, adversary) if MODEL_FREE[config.algo].adversaries == "one" else (agent,)


def options_of(config: TrainConfig) -> SACOptions:
    deterministic = MODEL_FREE[config.algo].deterministic
    given = {name: value for name, value in vars(config.solver).items() if name in SACOptions._fields}
    return SACOptions(
        **given, deterministic=deterministic,
        patience=PATIENCE if deterministic else 1, mixture=(config.mixture or "noisy") if deterministic else None,
    )  # fmt: skip


def pair_of(game: Game, learner: SACLearner) -> Pair:
    first, *second = learner.networks.actors
    return gaussian_pair(game, learner.normaliser, first, second)


class Practice(NamedTuple):
    """An episode that was learned from."""

    learner: SACLearner
    memory: ReplayMemory
    earned: float
    steps: int
    metrics: dict[str, float]


def practise(
    env: ZeroSumEnv, players: tuple[SACPlayer, ...], other: Callable[[np.ndarray], np.ndarray], learner: SACLearner,
    store: ReplayMemory, options: SACOptions, exploration: float | None, key: PRNGKeyArray,
) -> Practice:  # fmt: skip
    """An episode of the players that learn, the `other` one acting as it does; None explores by random actions."""
    game, keys = env.game, jax.random.split(key)
    generator = np.random.default_rng(seed := seed_of(keys[0]))
    boxes = {1: game.agent.on_host(), -1: game.adversary.on_host()}
    networks, metrics, earned, taken = on_host(learner), {}, 0.0, 0
    units = [np.zeros(0)] * len(players)
    origin = game.starts(keys[1], options.batch) if env.once and len(players) > 1 else None

    def decide(index: int, obs: np.ndarray) -> np.ndarray:
        """What a player that learns does; its point of the unit box is kept."""
        size, sign = players[index]
        if exploration is None:
            units[index] = generator.uniform(-1, 1, size)
        elif options.deterministic:
            noise = generator.standard_normal(size, np.float32)
            units[index] = np.clip(networks[index](obs, None) + exploration * noise, -1, 1)
        else:
            units[index] = networks[index](obs, generator.standard_normal(size, np.float32))
        return boxes[sign].place(units[index])

    own = {player.sign: partial(decide, index) for index, player in enumerate(players)}
    for step in steps(env, own.get(1, other), own.get(-1, other), seed):
        done = boxes[1].unit(step.executed) if options.mixture else np.concatenate(units)
        store = store.add(step.obs, done, step.reward, step.following, not step.terminated)
        earned, taken = earned + step.reward, taken + 1
        if store.count % options.every == 0 and exploration is not None:
            batches = store.draw(generator, max(1, round(options.updates * options.every)), options.batch)
            learner, metrics = timed("solving", sac.update, learner, batches, players, options, keys[1], origin)
            networks = on_host(learner)
    return Practice(learner, store, earned, taken, {name: float(x) for name, x in metrics.items()})


def on_host(learner: SACLearner) -> list[Any]:
    """All players' policies in NumPy, in their unit boxes."""
    return [sac.unit_policy(net, learner.normaliser).on_host() for net in learner.networks.actors]


class OffPolicyLearner(AbstractLearner[OffPolicyState]):
    """Every step of an episode is remembered, and learned from before the next few."""

    config: TrainConfig = eqx.field(static=True)

    def initial(self, env: ZeroSumEnv) -> OffPolicyState:
        game = training_env(self.config, env).game
        return self.fresh(game, self.config.episodes * game.horizon, jax.random.key(self.config.seed))

    def fresh(self, game: Game, capacity: int, key: PRNGKeyArray) -> OffPolicyState:
        config = self.config
        players, options = players_of(config, game), options_of(config)
        learner = sac.begin(players, game.scale, options, key, game.strength)
        outputs = players[0].size if options.mixture else sum(player.size for player in players)
        store = sac.memory(min(options.capacity, capacity), game.observation.size, outputs)
        pair = pair_of(game, learner)
        return OffPolicyState(learner, store._replace(count=np.int32(0)), pair, pair, jnp.int32(-1))

    def episode(self, env: ZeroSumEnv, state: OffPolicyState, index: int) -> tuple[OffPolicyState, dict]:
        """Episode `index`: played by both policies with their noise, learned from on the way."""
        config = self.config
        env = training_env(config, env)
        store = ReplayMemory(sac.Batch(*map(np.array, state.replay.rows)), int(state.replay.count))
        exploration = None if index < config.random_episodes else config.solver.exploration
        played = practise(
            env, players_of(config, env.game), lambda obs: env.neutral, state.learner, store, options_of(config),
            exploration, jax.random.fold_in(jax.random.key(config.seed), index),
        )  # fmt: skip
        pair, replay = pair_of(env.game, played.learner), played.memory._replace(count=np.int32(played.memory.count))
        metrics = {"episode": index, "return": played.earned, "steps": played.steps, "output_episode": index}
        return OffPolicyState(played.learner, replay, pair, pair, jnp.int32(index)), metrics | played.metrics
