"""What the cap on a fit's gradient steps costs: HalfCheetah's default fits beside the paper's twenty epochs.

    python benchmarks/fit.py [--episodes 30]

A run of H-UCRL is played; after some of its episodes the model is fitted from the same weights with the preset's cap
and with as many steps as twenty epochs over all data take (both may stop early), a few times each with other batches.
All are judged by their median one-step error on the run's next episode, in units of the changes' standard deviation.
Results go to results/fit.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from rhucrl.config import TrainConfig
from rhucrl.runtime.compilation import enable_cache
from rhucrl.training import protocol
from rhucrl.training.loop import env_of

EVERY, EPOCHS, REPEATS = 5, 20, 3


def error(model, transitions) -> float:
    """Root mean square over a step's dimensions, of the median step: a fall says nothing about the others."""
    miss = (model.predict(*transitions[:3]).mean - transitions.following) / model.changes[1]
    return float(jnp.median(jnp.sqrt(jnp.square(miss).mean(-1))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    enable_cache()
    config = TrainConfig.preset(
        "half-cheetah", setting="none", algo="h-ucrl", episodes=asked.episodes + 1, seed=asked.seed
    )
    env = env_of(config)
    state, waiting, rows, beta = protocol.ModelBased(config).initial(env), {}, [], jnp.float32(config.solver.beta)
    for index in range(config.episodes):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index), 3)
        explore, common = index < config.random_episodes, protocol.programs(config)
        if not explore:
            state, _ = protocol.select(common, env.game, state, protocol.numbers(config, index), keys[0])
        played = protocol.play(common, env, state, explore, keys[1])
        if waiting:
            rows.append({"transitions": int(state.replay.size)} | {
                name: {"errors": [error(model, played.transitions) for model in models], **told}
                for name, (models, told) in waiting.items()
            })  # fmt: skip
            print(rows[-1], flush=True)
            waiting = {}
        if (index + 1) % EVERY == 0:
            seen = int(state.replay.size + played.count)
            epochs = -(-EPOCHS * seen // config.model.batch // config.model.steps)
            for name, rounds in (("capped", config.model.rounds), ("twenty epochs", epochs)):
                one = dataclasses.replace(common, model=dataclasses.replace(common.model, rounds=int(rounds)))
                models = []
                for key in jax.random.split(keys[2], REPEATS):
                    clock = time.process_time()
                    after, told = jax.block_until_ready(protocol.learn(one, state, played, beta, key))
                    spent = time.process_time() - clock  # the first one's includes compiling
                    models.append(after.model)
                waiting[name] = models, {"steps": int(told["fit_steps"]), "cpu_seconds": round(spent, 2)}
        state, _ = protocol.learn(common, state, played, beta, keys[2])
    path = Path(__file__).parent / "results" / "fit.json"
    path.write_text(json.dumps({"seed": asked.seed, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
