"""A run on the disk: the protocol's episodes, each saved as soon as it has happened."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rhucrl import envs
from rhucrl.algorithms import MODEL_FREE
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.envs.stored import game_of, is_game_of, is_own, record_of
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import SimulationError, UsageError
from rhucrl.learner import AbstractLearner
from rhucrl.model_free.off_policy import OffPolicyLearner, OffPolicyState
from rhucrl.model_free.on_policy import OnPolicyLearner, OnPolicyState
from rhucrl.models.gaussian_process import model as gaussian_process
from rhucrl.networks.policies import Answer, Gaussian, NetworkOrRule, held_by
from rhucrl.runtime.progress import SILENT, ShowsProgress
from rhucrl.runtime.timing import Clock, timed
from rhucrl.solvers.base import Pair, Players
from rhucrl.storage.runs import Run
from rhucrl.storage.trees import load_tree, read_meta, read_names
from rhucrl.training.doubts import Doubts
from rhucrl.training.protocol import ModelBased, TrainingState

PLACE = (*envs.PLACE, "reward", "action_cost")
State = TrainingState | OffPolicyState | OnPolicyState
After = Callable[[State, dict[str, Any]], Any]


def learner_of(config: TrainConfig) -> AbstractLearner:
    if config.algo not in MODEL_FREE:
        return ModelBased(config)
    return {"off-policy": OffPolicyLearner, "on-policy": OnPolicyLearner}[MODEL_FREE[config.algo].learner](config)


class SavedPolicy(NamedTuple):
    """What a policy's folder holds: the two players, and the game that they were made for."""

    players: Players
    game: Game


def env_of(config: TrainConfig, trust: bool = False) -> ZeroSumEnv:
    """The environment that a configuration names. One of somebody's own is imported, which runs code, with `trust`."""
    if not trust and is_own(config.env):
        named = f"the environment {config.env!r} is its owner's code, which a stored name does not run"
        other = ", or trust the name (--trust, trust=True)" if ":" in config.env else ""
        raise UsageError(f"{named}: give the environment (--env module:make, env=...){other}")
    return envs.make(config.env, **{name: getattr(config, name) for name in PLACE})


def env_named(options: Mapping[str, Any], name: str | None) -> ZeroSumEnv | None:
    """The environment that a user names for a run or a policy, under the conditions that are stored with it."""
    if name is None:
        return None
    if ":" not in name and name != options["env"]:
        raise UsageError(f"the run is one of {options['env']}, not of {name}: leave --env out")
    asked = envs.PLACE if ":" in name else PLACE
    return envs.make(name, **{option: options[option] for option in asked if option in options})


def train(
    config: TrainConfig, folder: str | Path, progress: ShowsProgress = SILENT, env: ZeroSumEnv | None = None,
    after: After | None = None,
) -> State:  # fmt: skip
    """A new run in `folder`; whoever names an environment of their own in `config` trusts it."""
    env = env or env_of(config, trust=True)  # before there is a folder
    demand_soluble(config, env)
    with Run.create(folder, config) as run:
        return advance(run, config, env, learner_of(config).initial(env), 0, progress, after)


def demand_soluble(config: TrainConfig, env: ZeroSumEnv) -> None:
    if config.model is not None and config.model.kind == "gp":
        gaussian_process.demand(config, env.game)


def resume(
    folder: str | Path, episodes: int | None = None, progress: ShowsProgress = SILENT,
    env: ZeroSumEnv | None = None, trust: bool = False, more: int | None = None, after: After | None = None,
) -> State:  # fmt: skip
    """Go on with a run, to the same numbers as if it had never stopped.

    It goes on to the number of episodes that it was asked for, to a larger one (`episodes`), or for so many `more`.
    """
    run = Run.open(folder)
    config = config_of(run.folder, run.config)
    env = env or env_of(config, trust)
    with run:
        found = run.load_checkpoint(lambda meta: state_like(config, env.game, meta["episodes"]))
        done = found[0] + 1 if found else 0
        until = done + more if more else episodes or config.episodes
        if until < config.episodes and not more:
            raise UsageError(f"--episodes is {until}; the run was asked for {config.episodes} already")
        longer = dataclasses.replace(config, episodes=max(until, config.episodes))
        state = learner_of(longer).initial(env)
        state = with_room(found[1], state) if found else state
        run.truncate_metrics(done - 1)
        if longer != config:
            run.reconfigure(longer)
        return advance(run, longer, env, state, done, progress, after, until)


def last_state(folder: str | Path, game: Game) -> State:
    """The state of a run at its last checkpoint."""
    run = Run.open(folder)
    config = config_of(run.folder, run.config)
    if (found := run.load_checkpoint(lambda meta: state_like(config, game, meta["episodes"]))) is None:
        raise UsageError(f"{folder} has no checkpoint yet: wait for its first episode")
    return found[1]


def advance(
    run: Run | None, config: TrainConfig, env: ZeroSumEnv, state: State, done: int, progress: ShowsProgress,
    after: After | None = None, until: int | None = None,
) -> State:  # fmt: skip
    """Episodes `done`, `done` + 1, ...: played, logged, and saved in the order that makes a kill harmless.

    Without a run nothing is saved. `after(state, metrics)` is called after each episode, and ends it by False.
    """
    clock, until, doubts = Clock(), config.episodes if until is None else until, Doubts(env.game)
    progress.update(done, "compiling" if done < until else "done")
    for index in range(done, until):
        state, metrics = learner_of(config).episode(env, state, index)
        demand_numbers(metrics)
        if run is not None:
            timed("checkpointing", save, run, config, state, metrics, env.game)
            run.append_timing({"episode": index, **clock.lap()})
        progress.update(index + 1, f"return {metrics['return']:.0f}  " + remark(config, metrics))
        if doubt := doubts.of(metrics):
            warnings.warn(doubt, stacklevel=2)
        if after is not None and after(state, metrics) is False:
            break
    return state


def save(run: Run, config: TrainConfig, state: State, metrics: dict[str, Any], game: Game) -> None:
    meta, index = {"config": config.tree(), "game": record_of(game)}, metrics["episode"]
    run.append_metrics(metrics)
    for name, (players, episode) in {**learner_of(config).policies(state), "policy-last": (state.last, index)}.items():
        run.save_policy(SavedPolicy(players, game), {**meta, "episode": int(episode)}, name)
    run.save_checkpoint(index, without_room(state, (index + 1) * game.horizon), {"episodes": index + 1})


def policy_config(folder: Path) -> TrainConfig:
    """The configuration that a saved policy was learned with."""
    meta = read_meta(folder)
    if "config" not in meta:
        raise UsageError(f"{folder} holds no policy: name a run's folder or a saved policy")
    return config_of(folder, meta["config"])


def load_policy(folder: Path, env: ZeroSumEnv | None = None) -> tuple[TrainConfig, SavedPolicy]:
    """A saved policy and the configuration that it was learned with; functions of its game are those of `env`."""
    config, meta = policy_config(folder), read_meta(folder)
    if (record := meta.get("game")) is None:  # of a version that did not save the game
        game = (env or env_of(config)).game
        return config, SavedPolicy(load_tree(folder, state_like(config, game, 1).last)[0], game)
    game = env.game if env and is_game_of(record, env.game) else game_of(record)
    like = SavedPolicy(state_like(config, game, 1).last, game)
    response, names = like.players.response, read_names(folder)
    if isinstance(response, NetworkOrRule) and ".players.response.rule" not in names:
        return config, _earlier(folder, like, response, ".players.response.held" in names)
    return config, load_tree(folder, like)[0]


class _NetworkOrHeld(NamedTuple):
    """As versions saved it in which an adversary held an action or was a network."""

    network: Gaussian
    held: jax.Array
    holds: jax.Array


def _earlier(folder: Path, like: SavedPolicy, response: NetworkOrRule, held: bool) -> SavedPolicy:
    """The policy of a version in which no adversary followed a rule, and at first none held an action."""
    network, neutral, no = response.network, like.game.neutral, jnp.bool_(False)
    former = _NetworkOrHeld(network, neutral, no) if held else Answer(network)
    saved: Any = load_tree(folder, SavedPolicy(Pair(like.players.policy, former), like.game))[0]  # type: ignore[arg-type]
    there = saved.players.response
    network, action, holds = there if held else (there.policy, neutral, no)
    rule = held_by(saved.game.adversary, action, response.rule.shape[-1] - 1)
    return SavedPolicy(Pair(saved.players.policy, NetworkOrRule(network, rule, holds)), saved.game)


def demand_numbers(metrics: dict[str, Any]) -> None:
    """A run that has diverged ends before it overwrites what was good."""
    lost = [name for name, value in metrics.items() if isinstance(value, float) and math.isnan(value)]
    if lost:
        diverged = f"learning has diverged in episode {metrics['episode']}: {lost[0]} is not a number"
        raise SimulationError(f"{diverged}; the run is kept as it was: try a smaller --learning-rate or another seed")


def remark(config: TrainConfig, metrics: dict[str, Any]) -> str:
    if "J_pessimistic" in metrics:
        return "J in [{J_pessimistic:.0f}, {J_optimistic:.0f}]".format(**metrics)
    on_policy = config.algo in MODEL_FREE and MODEL_FREE[config.algo].learner == "on-policy"
    return "random actions" if metrics["episode"] < config.random_episodes and not on_policy else ""


def config_of(folder: Path, options: dict[str, Any]) -> TrainConfig:
    """The configuration that `folder` was written with."""
    try:
        return TrainConfig.of_tree(options)
    except UsageError as error:
        raise UsageError(f"{folder} has options that this version does not read ({error}): start a new run") from None


def without_room(state: State, capacity: int) -> State:
    """The same state, its store without the room that is still empty: that would only take time to write."""
    if isinstance(state, OnPolicyState):
        return state
    return state._replace(replay=jax.tree.map(lambda x: np.asarray(x)[:capacity] if x.ndim else x, state.replay))


def with_room(state: State, like: State) -> State:
    """The same state with a store as large as that of `like`, if it has one."""
    if isinstance(state, OnPolicyState) or isinstance(like, OnPolicyState):
        return state
    more = like.replay.capacity - state.replay.capacity

    def pad(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, jnp.zeros((more, *x.shape[1:]), x.dtype)]) if x.ndim else x

    return state._replace(replay=jax.tree.map(pad, state.replay))


def state_like(config: TrainConfig, game: Game, episodes: int) -> State:
    """The shape of a checkpoint of a run of so many episodes."""
    learner = learner_of(dataclasses.replace(config, episodes=episodes))
    return eqx.filter_eval_shape(learner.fresh, game, episodes * game.horizon, jax.random.key(0))
