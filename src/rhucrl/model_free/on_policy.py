"""On-policy algorithms as a protocol: a batch of episodes is played, learned from and forgotten."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.algorithms import MODEL_FREE
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.learner import AbstractLearner
from rhucrl.model_free.ppo import EpisodeBatch, PPONumbers, PPOPlayer, begin, improve
from rhucrl.networks.policies import Gaussian, Normaliser
from rhucrl.play import scan_steps, seed_of, steps
from rhucrl.runtime.compilation import compiled
from rhucrl.runtime.timing import timed
from rhucrl.solvers.base import Pair, gaussian_pair, training_env


class Pending(NamedTuple):
    """The episodes of a batch so far: what both players did, and which adversary played."""

    obs: Float[Array, "n t+1 p"]
    agent: Float[Array, "n t q"]
    adversary: Float[Array, "n t qbar"]
    reward: Float[Array, "n t"]
    alive: Float[Array, "n t"]
    ended: Float[Array, "n t"]
    who: Array


class OnPolicyState(NamedTuple):
    """Everything that a run needs to go on, bit for bit."""

    agent: PPOPlayer
    adversaries: list[PPOPlayer]
    pending: Pending
    last: Pair
    output: Pair
    output_episode: Array


def normaliser(game: Game) -> Normaliser:
    return Normaliser(jnp.zeros(game.observation.size), game.scale, ())


def pair_of(game: Game, agent: PPOPlayer, adversaries: list[PPOPlayer]) -> Pair:
    return gaussian_pair(game, normaliser(game), agent.actor, [player.actor for player in adversaries])


def learn(config: TrainConfig, game: Game, state: OnPolicyState, index: int) -> tuple[OnPolicyState, dict]:
    """PPO for the agent on the episodes that count for it, and for each adversary on those that it has played.

    RARL's players learn in turn: batch `index` is the agent's or the adversary's.
    """
    row, pending, units = MODEL_FREE[config.algo], state.pending, normaliser(game)
    its = config.solver
    numbers = PPONumbers(*map(jnp.float32, (its.discount, its.trace, its.learning_rate, its.clip, its.divergence)))
    chosen = worst(pending.reward.sum(1), its.kept) if row.worst_only else jnp.ones(its.rollouts)
    low, high = game.reward_range
    reward = pending.reward / ((high - low) / (1 - its.discount) / 32)  # in units of the critics
    batch = EpisodeBatch(pending.obs, pending.agent, reward, pending.alive, pending.ended)
    agent, adversaries, metrics = state.agent, list(state.adversaries), {}
    turn = index // its.turn % 2 if config.algo == "rarl" and its.turn else None
    if turn != 1:
        agent, metrics = improve(agent, units, batch, chosen, numbers, its.passes)
    opposite = batch._replace(noise=pending.adversary, reward=-reward)
    if game.scope == "episode":
        opposite = one_decision(opposite, its.discount)
    for i, player in enumerate(adversaries):
        share = (pending.who == i).astype(jnp.float32)
        if turn != 0 and share.sum() > 0:
            adversaries[i], losses = improve(player, units, opposite, share, numbers, its.passes)
            metrics |= {f"adversary_{name}": x for name, x in losses.items()}
    pair = pair_of(game, agent, adversaries)
    pending = jax.tree.map(jnp.zeros_like, pending)
    return OnPolicyState(agent, adversaries, pending, pair, pair, state.output_episode), metrics


def one_decision(batch: EpisodeBatch, discount: float) -> EpisodeBatch:
    """The episodes of a player that acts where they begin: one step each, which everything that follows rewards."""
    time = jnp.arange(batch.reward.shape[1])
    first, later = (time == 0).astype(jnp.float32), discount**time
    total = (batch.reward * batch.alive) @ later
    return batch._replace(reward=total[:, None] * first, alive=batch.alive * first, ended=batch.alive * first)


def worst(returns: Float[Array, " n"], share: float) -> Float[Array, " n"]:
    """1 for the episodes with the lowest returns, so many of them, else 0 (the tail that CVaR is the mean of)."""
    count = max(1, round(share * returns.shape[0]))
    return jnp.zeros_like(returns).at[jnp.argsort(returns)[:count]].set(1.0)


@compiled()
def in_jax(game: JaxGame, policy: Gaussian, opponent: Gaussian | None, held: Array, key: PRNGKeyArray) -> Pending:
    keys, boxes = jax.random.split(key, 4), (game.agent, game.adversary)
    noises = [jax.random.normal(k, (game.horizon, box.size)) for k, box in zip(keys[:2], boxes, strict=True)]

    def players(before: Array, obs: Array, time: Array) -> tuple[Array, Array, Array]:
        adversary = held if opponent is None else opponent.sample(obs, noises[1][time])[0]
        if game.scope == "episode":
            adversary = jnp.where(time == 0, adversary, before)
        return adversary, policy.sample(obs, noises[0][time])[0], adversary

    path = scan_steps(game, players, jnp.zeros(game.adversary.size), keys[3], keys[2])
    obs, ended = jnp.concatenate([path.obs, path.following[-1:]]), path.alive & game.terminated(path.following)
    alive, ended = (x.astype(jnp.float32) for x in (path.alive, ended))
    return Pending(obs, noises[0], noises[1], path.reward, alive, ended, jnp.float32(0))


def on_host(
    env: ZeroSumEnv, policy: Gaussian, opponent: Gaussian | None, held: np.ndarray, key: PRNGKeyArray
) -> Pending:
    game, seed = env.game, seed_of(key)
    generator, t = np.random.default_rng(seed), game.horizon
    noises = [generator.standard_normal((t, box.size), np.float32) for box in (game.agent, game.adversary)]
    agent, adversary = policy.on_host(), opponent.on_host() if opponent is not None else None
    obs, columns = np.zeros((t + 1, game.observation.size), np.float32), np.zeros((3, t), np.float32)
    time = 0

    def act(seen: np.ndarray) -> np.ndarray:
        return agent(seen, noises[0][time])

    def answer(seen: np.ndarray) -> np.ndarray:
        return held if adversary is None else adversary(seen, noises[1][time])

    for step in steps(env, act, answer, seed):
        obs[time], obs[time + 1] = step.obs, step.following
        columns[:, time] = step.reward, 1.0, step.terminated
        time += 1
    rows: list[Any] = [obs, *noises, *columns]
    return Pending(*rows, who=jnp.float32(0))


class OnPolicyLearner(AbstractLearner[OnPolicyState]):
    """Episodes are collected into batches, each of which is learned from once."""

    config: TrainConfig = eqx.field(static=True)

    def initial(self, env: ZeroSumEnv) -> OnPolicyState:
        return self.fresh(training_env(self.config, env).game, 0, jax.random.key(self.config.seed))

    def fresh(self, game: Game, capacity: int, key: PRNGKeyArray) -> OnPolicyState:
        config = self.config
        count = {"one": 1, "population": config.solver.population}.get(MODEL_FREE[config.algo].adversaries, 0)
        keys, p, t, n = jax.random.split(key, 1 + count), game.observation.size, game.horizon, config.solver.rollouts
        agent = begin(p, game.agent.size, config.solver.width, keys[0])
        adversaries = [begin(p, game.adversary.size, config.solver.width, k) for k in keys[1:]]
        shapes = ((t + 1, p), (t, game.agent.size), (t, game.adversary.size), (t,), (t,), (t,), ())
        pending = Pending(*(jnp.zeros((n, *shape)) for shape in shapes))
        pair = pair_of(game, agent, adversaries)
        return OnPolicyState(agent, adversaries, pending, pair, pair, jnp.int32(-1))

    def episode(self, env: ZeroSumEnv, state: OnPolicyState, index: int) -> tuple[OnPolicyState, dict]:
        """Episode `index`: one more of its batch; the last one of a batch is learned from with the others."""
        config = self.config
        env = training_env(config, env)
        game, row = env.game, MODEL_FREE[config.algo]
        keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index), 3)
        who = int(jax.random.randint(keys[0], (), 0, max(len(state.adversaries), 1)))
        policy = Gaussian(state.agent.actor, normaliser(game), game.agent)
        value = game.adversary.place(jax.random.uniform(keys[1], (game.adversary.size,), minval=-1.0))
        held = value if row.adversaries == "sampled" else game.neutral
        nets = [player.actor for player in state.adversaries]
        opponent = Gaussian(nets[who], normaliser(game), game.adversary) if nets else None
        if isinstance(game, JaxGame):
            played = timed("collecting", in_jax, game, policy, opponent, held, keys[2])
        else:
            played = timed("collecting", on_host, env, policy, opponent, np.asarray(held), keys[2])
        place = index % config.solver.rollouts
        played = played._replace(who=jnp.float32(who))
        pending = jax.tree.map(lambda all, one: all.at[place].set(one), state.pending, played)
        metrics = {"return": float(played.reward.sum()), "steps": int(played.alive.sum())}
        state = state._replace(pending=pending)
        if place == config.solver.rollouts - 1:
            state, learned = timed("solving", learn, config, game, state, index // config.solver.rollouts)
            metrics |= {name: float(x) for name, x in learned.items()}
        state = state._replace(output_episode=jnp.int32(index))
        return state, {"episode": index, **metrics, "output_episode": index}
