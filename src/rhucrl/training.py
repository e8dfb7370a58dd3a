"""A run on the disk: the protocol's episodes, each saved as soon as it has happened."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rhucrl import envs, off_policy, on_policy, protocol
from rhucrl.algorithms import MODEL_FREE
from rhucrl.config import TrainConfig
from rhucrl.envs.face import ZeroSumEnv
from rhucrl.errors import SimulationError, UsageError
from rhucrl.models import gaussian_process
from rhucrl.runs import Run
from rhucrl.timing import Clock, timed


class Progress(Protocol):
    def update(self, n: int, text: str = "") -> None: ...


class Silent:
    """No progress shown."""

    def update(self, n: int, text: str = "") -> None:
        pass


PROTOCOLS: dict[str, Any] = {"off-policy": off_policy, "on-policy": on_policy}
State = Any  # of one of the protocols


def protocol_of(config: TrainConfig) -> Any:
    """The module that plays and learns: it has `initial`, `fresh`, `episode` and `deployed`."""
    return PROTOCOLS[MODEL_FREE[config.algo].learner] if config.algo in MODEL_FREE else protocol


def env_of(config: TrainConfig) -> ZeroSumEnv:
    names = ("setting", "strength", "scope", "mixture", "reward", "action_cost", "horizon")
    return envs.make(config.env, **{name: getattr(config, name) for name in names})


def train(
    config: TrainConfig, folder: str | Path, progress: Progress | None = None, env: ZeroSumEnv | None = None
) -> State:
    """A new run in `folder`."""
    env = env or env_of(config)  # before there is a folder
    if config.model == "gp":
        gaussian_process.demand(config, env.game)
    with Run.create(folder, config) as run:
        return advance(run, config, env, protocol_of(config).initial(config, env), 0, progress or Silent())


def resume(folder: str | Path, episodes: int | None = None, progress: Progress | None = None) -> State:
    """Go on with a run, to the same numbers as if it had never stopped; `episodes` may prolong it."""
    run = Run.open(folder)
    config = config_of(run.folder, run.config)
    longer = dataclasses.replace(config, episodes=episodes or config.episodes)
    if longer.episodes < config.episodes:
        raise UsageError(f"--episodes is {longer.episodes}; the run was asked for {config.episodes} already")
    env = env_of(config)
    with run:
        state, done = protocol_of(config).initial(longer, env), 0
        if found := run.load_checkpoint(lambda meta: state_like(config, meta["episodes"])):
            last, saved, _ = found
            state, done = with_room(saved, state), last + 1
        run.truncate_metrics(done - 1)
        if longer != config:
            run.reconfigure(longer)
        return advance(run, longer, env, state, done, progress or Silent())


def last_state(folder: str | Path) -> State:
    """The state of a run at its last checkpoint."""
    run = Run.open(folder)
    config = config_of(run.folder, run.config)
    if (found := run.load_checkpoint(lambda meta: state_like(config, meta["episodes"]))) is None:
        raise UsageError(f"{folder} has no checkpoint yet: wait for its first episode")
    return found[1]


def advance(run: Run, config: TrainConfig, env: ZeroSumEnv, state: State, done: int, progress: Progress) -> State:
    """Episodes `done`, `done` + 1, ...: played, logged, and saved in the order that makes a kill harmless."""
    clock = Clock()
    progress.update(done, "compiling" if done < config.episodes else "done")
    for index in range(done, config.episodes):
        state, metrics = protocol_of(config).episode(config, env, state, index)
        demand_numbers(metrics)
        timed("checkpointing", save, run, config, state, metrics, env.game.horizon)
        run.append_timing({"episode": index, **clock.lap()})
        progress.update(index + 1, f"return {metrics['return']:.0f}  " + remark(config, metrics))
    return state


def save(run: Run, config: TrainConfig, state: State, metrics: dict[str, Any], horizon: int) -> None:
    options, index = dataclasses.asdict(config), metrics["episode"]
    run.append_metrics(metrics)
    run.save_policy(state.output, {"config": options, "episode": metrics["output_episode"]})
    run.save_policy(state.last, {"config": options, "episode": index}, "policy-last")
    run.save_checkpoint(index, without_room(state, (index + 1) * horizon), {"episodes": index + 1})


def demand_numbers(metrics: dict[str, Any]) -> None:
    """A run that has diverged ends before it overwrites what was good."""
    lost = [name for name, value in metrics.items() if isinstance(value, float) and math.isnan(value)]
    if lost:
        told = f"learning has diverged in episode {metrics['episode']}: {lost[0]} is not a number"
        raise SimulationError(f"{told}; the run is kept as it was: try a smaller --learning-rate or another seed")


def remark(config: TrainConfig, metrics: dict[str, Any]) -> str:
    if "J_pessimistic" in metrics:
        return "J in [{J_pessimistic:.0f}, {J_optimistic:.0f}]".format(**metrics)
    on_policy = config.algo in MODEL_FREE and MODEL_FREE[config.algo].learner == "on-policy"
    return "random actions" if metrics["episode"] < config.random_episodes and not on_policy else ""


def config_of(folder: Path, options: dict[str, Any]) -> TrainConfig:
    """The configuration that `folder` was written with."""
    try:
        return TrainConfig(**options)
    except TypeError as error:
        raise UsageError(f"{folder} has options that are unknown here ({error}): start a new run") from None


def without_room(state: State, capacity: int) -> State:
    """The same state, its store without the room that is still empty: that would only take time to write."""
    if not hasattr(state, "replay"):
        return state
    return state._replace(replay=jax.tree.map(lambda x: np.asarray(x)[:capacity] if x.ndim else x, state.replay))


def with_room(state: State, like: State) -> State:
    """The same state with a store as large as that of `like`, if it has one."""
    if not hasattr(state, "replay"):
        return state
    more = like.replay.capacity - state.replay.capacity

    def pad(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, jnp.zeros((more, *x.shape[1:]), x.dtype)]) if x.ndim else x

    return state._replace(replay=jax.tree.map(pad, state.replay))


def state_like(config: TrainConfig, episodes: int) -> State:
    """The shape of a checkpoint of a run of so many episodes."""
    config = dataclasses.replace(config, episodes=episodes)
    its = protocol_of(config)
    game = its.training_env(config, env_of(config)).game
    return eqx.filter_eval_shape(its.fresh, config, game, config.episodes * game.horizon, jax.random.key(0))


def pair_like(config: TrainConfig) -> Any:
    """The shape of saved policies."""
    return state_like(config, 1).output
