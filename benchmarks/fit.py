"""What a robot's model is fitted with: its defaults beside variants of them, judged by episodes that no fit has seen.

    python benchmarks/fit.py [hopper half-cheetah] [--episodes 24]

A run of H-UCRL without an adversary is played with the defaults, and its data are kept. Then the model of each variant
follows that run: after every third episode it is fitted from the weights that it has, and judged by the next episode.
Errors are in units of the changes' standard deviation: that of the median step, the root mean square of all steps, and
that of the median ten steps predicted in a row. Results go to results/fit.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from rhucrl import replay as store
from rhucrl.config import TrainConfig
from rhucrl.models import ensemble
from rhucrl.models.ensemble import EnsembleModel
from rhucrl.replay import Transitions
from rhucrl.runtime.compilation import enable_cache
from rhucrl.training.loop import env_of, learner_of

EVERY, AHEAD = 3, 10
SAME = 1e-5  # observations that differ by less are those of one state
VARIANTS = {
    "default": {},
    "the last weights": {"model_average_rate": 1.0},
    "hardly any decay": {"model_decay": 1e-4},
    "without the linear part": {"linear": False},
    "twice the steps": {"model_rounds": 30},
    "half the steps": {"model_rounds": 8},
    "eight heads": {"heads": 8},
    "one noise for all states": {"noise": "constant"},
    "means by the likelihood under each state's noise": {"noise": "state"},
    "two layers of 200": {"model_layers": 2, "model_width": 200},
    "four layers of 128": {"model_layers": 4, "model_width": 128},
}


def config_of(env: str, episodes: int, options: dict) -> TrainConfig:
    return TrainConfig.preset(env=env, setting="none", algo="h-ucrl", episodes=episodes, seed=0, **options)


def played(env: str, episodes: int) -> list[Transitions]:
    """The episodes of a run with the defaults."""
    config = config_of(env, episodes, {})
    game = env_of(config)
    learner = learner_of(config)
    state = learner.initial(game)
    for index in range(episodes):
        state, _ = learner.episode(game, state, index)
    n, data = game.game.horizon, state.replay.data
    return [jax.tree.map(lambda x, i=i: x[i * n : (i + 1) * n], data) for i in range(int(state.replay.size) // n)]


def errors(model: EnsembleModel, new: Transitions) -> tuple[float, float, float]:
    """Of the median step, of all steps, and of the median ten in a row."""

    def miss(predicted: Array, true: Array) -> Array:
        return jnp.sqrt(jnp.square((predicted - true) / model.changes[1]).mean(-1))

    one = miss(model.predict(*new[:3]).mean, new.following)
    follows = np.abs(new.obs[1:] - new.following[:-1]).max(-1) < SAME
    begins = np.array([i for i in range(0, len(follows) - AHEAD, 7) if follows[i : i + AHEAD - 1].all()])
    state = new.obs[begins]
    for later in range(AHEAD):
        state = model.predict(state, new.executed[begins + later], new.adversary[begins + later]).mean
    many = miss(state, new.following[begins + AHEAD - 1])
    return float(jnp.median(one)), float(jnp.sqrt(jnp.square(one).mean())), float(jnp.median(many))


def followed(config: TrainConfig, episodes: list[Transitions]) -> dict[str, float]:
    """How well a model that is fitted along the run foresees it, and what a fit costs."""
    game, n = env_of(config).game, len(episodes[0].obs)
    sizes = game.predicted_size, game.agent.size, game.adversary.size
    replay = store.empty(len(episodes) * n, sizes, config.model.heads)
    model, memory = ensemble.create(config, game, jax.random.key(0))
    found, spent = [], []
    for i, new in enumerate(episodes):
        if i > config.random_episodes and i % EVERY == 0:
            found.append(errors(model, new))
        replay = store.add(replay, new, jnp.int32(n), jax.random.key(i))
        if i >= config.random_episodes - 1 and (i + 1) % EVERY == 0:
            clock = time.process_time()
            learned = ensemble.learn(config, model, memory, replay, jax.random.key(100 + i))
            model, memory, _ = jax.block_until_ready(learned)
            spent.append(time.process_time() - clock)
    median, rms, ten = np.mean(found, 0)
    return {"median": median, "rms": rms, "ten": ten, "cpu": float(np.median(spent)), "fits": len(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("envs", nargs="*", default=["hopper", "half-cheetah"])
    parser.add_argument("--episodes", type=int, default=24)
    asked = parser.parse_args()
    enable_cache()
    rows = []
    for env in asked.envs:
        episodes = played(env, asked.episodes)
        for name, options in VARIANTS.items():
            row = followed(config_of(env, asked.episodes, options), episodes)
            rows.append({"env": env, "variant": name} | {key: float(f"{x:.4g}") for key, x in row.items()})
            print(rows[-1], flush=True)
    path = Path(__file__).parent / "results" / "fit.json"
    path.write_text(json.dumps({"episodes": asked.episodes, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
