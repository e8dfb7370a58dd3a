"""Several seeds in one compiled program, or one after the other: CPU seconds of the costliest part of an episode.

    python benchmarks/seeds.py [--seeds 4]

Solves the agent's problem of the default run for several seeds at once (vmap) and in turn, on one core. Results go to
results/seeds.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = parser.parse_args().seeds
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    import jax
    import jax.numpy as jnp

    from rhucrl.config import TrainConfig
    from rhucrl.solvers.look_ahead import solver as look_ahead
    from rhucrl.training import protocol
    from rhucrl.training.loop import env_of

    config = TrainConfig.preset()
    env, n = env_of(config), protocol.numbers(config, 0)
    solver = look_ahead.LookAheadSolver(config, env.game)
    states = [protocol.ModelBased(TrainConfig.preset(seed=seed)).initial(env) for seed in range(seeds)]
    keys = jax.random.split(jax.random.key(0), seeds)

    def solve(model, replay, learner, key):
        return look_ahead.solve_agent.__wrapped__(solver, model, replay, learner, n, key)

    parts = [(state.model, state.replay, state.learner) for state in states]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    alone, at_once = jax.jit(solve), jax.jit(jax.vmap(solve))

    def cpu_seconds(run) -> float:
        jax.block_until_ready(run())
        times = []
        for _ in range(5):
            began = time.process_time()
            jax.block_until_ready(run())
            times.append(time.process_time() - began)
        return min(times)

    in_turn = cpu_seconds(lambda: [alone(*part, key) for part, key in zip(parts, keys, strict=True)])
    vmapped = cpu_seconds(lambda: at_once(*together, keys))
    result = {"seeds": seeds, "in_turn": in_turn, "vmapped": vmapped, "ratio": vmapped / in_turn}
    print(result)
    (Path(__file__).parent / "results" / "seeds.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
