"""Adversaries that learn by soft actor-critic against a frozen policy in the true game: the paper's evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from rhucrl.attacks.arena import Actor, Arena
from rhucrl.attacks.families import WIDTH, Member, member
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.model_free.off_policy import Practice, on_host, practise
from rhucrl.model_free.sac import ReplayMemory, SACLearner, SACOptions, SACPlayer, begin, memory, update
from rhucrl.networks.layers import Perceptron
from rhucrl.play import seed_of, steps

OPTIONS = SACOptions(width=WIDTH, batch=128, every=16, learning_rate=1e-3)
RANDOM = {"step": 1, "episode": 20}  # episodes of random actions at the start


class Learned(NamedTuple):
    """The adversary after its last episode, and the one after the episode that was worst for the agent."""

    last: Member
    best: Member


def learn_adversary(
    arena: Arena, episodes: int, seed: int, progress: Callable[[int, float], Any] = lambda done, earned: None
) -> Learned:
    """`progress` is told the number of episodes that are over, and the return of the last one."""
    game, key, once = arena.env.game, jax.random.key(seed), arena.env.game.scope == "episode"
    players, random = (SACPlayer(game.adversary.size, -1),), RANDOM[game.scope]
    play = practise_once if once else practise
    learner, found = begin(players, game.scale, OPTIONS, key), []
    store = memory(episodes * (1 if once else game.horizon), game.observation.size, game.adversary.size)
    for index in range(episodes):
        exploration, luck = None if index < random else 0.0, jax.random.fold_in(key, index)
        arena.act.reset()
        played = play(arena.env, players, arena.act, learner, store, OPTIONS, exploration, luck)
        learner, store = played.learner, played.memory
        found.append((played.earned, learner.networks.actors[0]))
        progress(index + 1, played.earned)
        arena.watch()
    best = min(found[random:] or found, key=lambda pair: pair[0])
    return Learned(*(member(game, "deep", _flat(actor)) for _, actor in (found[-1], best)))


def practise_once(
    env: ZeroSumEnv, players: tuple[SACPlayer, ...], act: Actor, learner: SACLearner, store: ReplayMemory,
    options: SACOptions, exploration: float | None, key: PRNGKeyArray,
) -> Practice:  # fmt: skip
    """`off_policy.practise` where the adversary acts once: an episode is one transition, which ends.

    Its reward is the mean reward of the steps, which keeps the critics' numbers as small as those of step scope; and
    there are as many gradient steps as in an episode of step scope.
    """
    keys, size = jax.random.split(key), players[0].size
    generator = np.random.default_rng(seed := seed_of(keys[0]))
    box, unit, metrics = env.game.adversary.on_host(), np.zeros(size), {}

    def answer(obs: np.ndarray) -> np.ndarray:
        nonlocal unit
        if exploration is None:
            unit = generator.uniform(-1, 1, size)
        else:
            unit = on_host(learner)[0](obs, generator.standard_normal(size, np.float32))
        return box.place(unit)

    path = list(steps(env, act, answer, seed))
    earned = sum(step.reward for step in path)
    store = store.add(path[0].obs, unit, earned / env.game.horizon, path[-1].following, False)
    if exploration is not None:
        batches = store.draw(generator, max(1, round(options.updates * env.game.horizon)), options.batch)
        learner, metrics = update(learner, batches, players, options, keys[1])
    return Practice(learner, store, float(earned), len(path), {name: float(x) for name, x in metrics.items()})


def _flat(net: Perceptron) -> np.ndarray:
    """A policy network's weights in one vector, without those of its standard deviation."""
    *hidden, last = [(np.asarray(layer.weight).T, np.asarray(layer.bias)) for layer in net.layers]
    mode = tuple(part[: len(part) // 2] for part in last)
    return np.concatenate([part.ravel() for layer in (*hidden, mode) for part in layer])
