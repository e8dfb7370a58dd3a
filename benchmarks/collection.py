"""What an episode costs: CPU seconds of 1,000 steps of each robot with two policies, of these alone, of the simulator.

    python benchmarks/collection.py

Both policies are networks of the default size. Rounds of all three are interleaved, and the least of each counts. The
rest is bookkeeping, much of it per episode: fresh policies fall soon. Results go to results/collection.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rows import RESULTS

import rhucrl
from rhucrl.config import TrainConfig
from rhucrl.envs.robots import ROBOTS
from rhucrl.play import acting, play_on_host
from rhucrl.solvers.base import deployed
from rhucrl.training import protocol
from rhucrl.training.loop import env_of

STEPS, ROUNDS = 1000, 5


def simulate(env: rhucrl.ZeroSumEnv, actions: np.ndarray) -> int:
    """The environment under Gymnasium's interface, without any adversary."""
    inner, steps = env.system.simulator.env.unwrapped, 0
    inner.reset(seed=0)
    for action in actions:
        steps += 1
        if inner.step(action)[2]:
            inner.reset()
    return steps


def contest(env: rhucrl.ZeroSumEnv, players: Any) -> int:
    steps = 0
    while steps < STEPS:
        steps += int(play_on_host(env, lambda: players, jax.random.key(steps)).count)
    return steps


def infer(env: rhucrl.ZeroSumEnv, players: Any) -> int:
    """Both policies, at one observation."""
    obs, generator = env.reset(seed=0)[0], np.random.default_rng(0)
    for _ in range(STEPS):
        players.act(obs, generator)
        players.answer(obs, generator)
    return STEPS


def seconds(work: Callable[..., int], *arguments: Any) -> float:
    """CPU seconds per 1,000 steps."""
    clock = time.process_time()
    steps = work(*arguments)
    return (time.process_time() - clock) / steps * 1000


def main() -> None:
    result = {}
    for name in ROBOTS:
        config = TrainConfig.preset(name)
        env = env_of(config)
        pair = protocol.ModelBased(config).initial(env).last
        players = acting(pair.policy, deployed(config.algo, pair, env.game))
        space = env.boxes["agent"]
        actions = np.random.default_rng(0).uniform(space.low, space.high, (STEPS, *space.shape))
        contest(env, players)
        work = {"episode": (contest, players), "policies": (infer, players), "simulator": (simulate, actions)}
        rounds = [[seconds(f, env, x) for f, x in work.values()] for _ in range(ROUNDS)]
        result[name] = dict(zip(work, (round(min(column), 4) for column in zip(*rounds, strict=True)), strict=True))
        print(name, result[name], flush=True)
    (RESULTS / "collection.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
