"""The agent as users of Stable-Baselines3 know one: learn, predict, save, load."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.stored import name_of, record_of
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.models.base import AbstractModel
from rhucrl.networks.policies import AbstractAdversary, AbstractPolicy
from rhucrl.play import checked, predict
from rhucrl.runtime.compilation import enable_cache
from rhucrl.runtime.progress import SILENT, Progress
from rhucrl.solvers.actor_critic.problem import observed_limits
from rhucrl.solvers.base import Players, Value, deployed
from rhucrl.storage.runs import Run
from rhucrl.storage.trees import save_tree
from rhucrl.training import loop as training
from rhucrl.training import protocol
from rhucrl.training.protocol import TrainingState

Callback = Callable[[dict[str, Any]], Any]


class Agent:
    """An algorithm, its environment and, once it has learned, its output policy."""

    def __init__(self, env: Any, algo: str = "rh-ucrl", seed: int = 0, **options: Any):
        face: ZeroSumEnv = env if isinstance(env, ZeroSumEnv) else ZeroSumEnv(env)
        self._env: ZeroSumEnv | None = face
        self.game: Game = face.game
        place = {"env": name_of(self.game), **self.game.options()}
        like = "pendulum" if isinstance(self.game, JaxGame) else None
        self.config = TrainConfig.preset(**{**place, "algo": algo, "seed": seed, **options}, like=like)
        self._clear()

    def _clear(self) -> None:
        self.state: training.State | None = None
        self._pair: Players | None = None
        self._folder: Path | None = None
        self.episodes = 0
        self.set_random_seed(self.config.seed)

    def __repr__(self) -> str:
        config = self.config
        place = f"{config.env}, {config.setting}" + (f" {config.strength:g}" if config.strength else "")
        learned = f"{self.episodes} episodes" if self._pair is not None else "not learned yet"
        where = f", run in {self._folder}" if self._folder else ""
        return f"{NAMES.get(config.algo, 'Agent')}({place}, seed {config.seed}: {learned}{where})"

    def learn(
        self, episodes: int = 30, run_dir: str | Path | None = None, progress: bool | Any | None = None,
        callback: Callback | None = None, verbose: int | None = None,
    ) -> Agent:  # fmt: skip
        """Learn for `episodes` real episodes, and return the agent. Called again, it goes on for so many more.

        With a `run_dir` every episode is saved there, and the run can be resumed after any stop. `callback(metrics)` is
        called after each episode, and ends learning by returning False. Progress is shown on a terminal and in
        notebooks; `progress=True` shows it anywhere, `progress=False` or `verbose=0` nowhere.
        """
        if episodes < 1:
            raise UsageError(f"episodes is {episodes}; it must be at least 1")
        enable_cache()
        done, folder = self.episodes, self._folder
        if folder is None and done and self.state is None:
            raise UsageError("a saved policy cannot learn on: rhucrl.load() the folder of its run")
        if run_dir is not None and done and (folder is None or Path(run_dir).absolute() != folder.absolute()):
            where = f"is in {folder}" if folder else "is not saved"
            raise UsageError(f"this agent has begun to learn, and its run {where}: leave run_dir out to go on with it")

        def after(state: Any, metrics: dict[str, Any]) -> Any:
            self._learned(state)
            self.episodes = metrics["episode"] + 1
            return callback(metrics) if callback is not None else None

        with _shown(progress, verbose, done + episodes, f"{self.config.algo} {self.config.env}") as shown:
            if folder is not None:
                state = training.resume(folder, more=episodes, progress=shown, env=self.env, after=after)
            else:
                longer = dataclasses.replace(self.config, episodes=done + episodes, **self.game.options())
                self.config = longer
                if run_dir is not None:
                    self._folder = Path(run_dir)
                    try:
                        state = training.train(longer, run_dir, shown, self.env, after)
                    except UsageError:
                        self._folder = None
                        raise
                else:
                    state = self._unsaved(longer, shown, after)
        if self._folder is not None:
            self.config = training.config_of(self._folder, Run.open(self._folder).config)
        self._learned(state)
        return self

    def _learned(self, state: Any) -> None:
        self.state, (self._pair, _) = state, training.learner_of(self.config).policies(state)["policy"]

    def _unsaved(self, config: TrainConfig, progress: Any, after: Any) -> Any:
        training.demand_soluble(config, self.env)
        state = training.learner_of(config).initial(self.env)
        state = state if self.state is None else training.with_room(self.state, state)
        return training.advance(None, config, self.env, state, self.episodes, progress, after)

    @classmethod
    def resume(
        cls, run_dir: str | Path, env: Any = None, trust: bool = False, progress: bool | Any | None = None,
        callback: Callback | None = None, verbose: int | None = None,
    ) -> Agent:  # fmt: skip
        """The agent of a run that was stopped, after it has gone on to the episodes that the run was asked for."""
        config = training.config_of(Path(run_dir), Run.open(run_dir).config)
        enable_cache()
        env = _adopted(env) or training.env_of(config, trust)
        with _shown(progress, verbose, config.episodes, f"{config.algo} {config.env}") as shown:
            training.resume(run_dir, progress=shown, env=env, after=lambda _, row: callback and callback(row))
        return load(run_dir, env)

    @property
    def env(self) -> ZeroSumEnv:
        """The environment: the one it was given, or the one that its configuration names."""
        if self._env is None:
            self._env = training.env_of(self.config)
        return self._env

    @property
    def policy(self) -> AbstractPolicy:
        """The output policy: a pure batched function of observations."""
        return self.pair.policy

    @property
    def pair(self) -> Players:
        if self._pair is None:
            raise UsageError("this agent has not learned yet: call learn(), or rhucrl.load() a saved one")
        return self._pair

    @property
    def learned(self) -> training.State:
        """All that it has learned: the last state of its run, with the model and the critics."""
        if self.state is None and self._folder is not None:
            self.state = training.last_state(self._folder, self.game)
        if self.state is None:
            raise UsageError("a saved policy has no model and no critics: rhucrl.load() the folder of its run")
        return self.state

    @property
    def model(self) -> AbstractModel:
        """The dynamics model that it has learned."""
        if not isinstance(state := self.learned, TrainingState):
            raise UsageError(f"{self.config.algo} learns no model: plan with that of rh-ucrl, or with a known one")
        return state.model

    @property
    def limits(self) -> Any:
        """The range of what it has seen, where the game does not say what is possible."""
        if isinstance(self.game, JaxGame) or not isinstance(state := self.learned, TrainingState):
            return None
        return observed_limits(self.game, state.replay)

    @property
    def value(self) -> Value:
        """The critic of the agent's problem: a batched function of observations, in the units of the reward."""
        if not isinstance(state := self.learned, TrainingState):
            raise UsageError(f"{self.config.algo} has no critic of states: take that of an agent that learns a model")
        return protocol.value(self.config, self.game, state)

    @property
    def opponent(self) -> AbstractAdversary:
        """The adversary that it learned with, as an answer to state and action."""
        return deployed(self.config.algo, self.pair, self.game)

    def adversary(self, obs: Array, time: Array) -> Array:
        """The same as a function of the state and the step."""
        return self.opponent(obs, self.policy(obs))

    def __call__(self, obs: Array) -> Array:
        return self.policy(obs)

    def set_random_seed(self, seed: int | None) -> None:
        """Seed the noise of actions that are not deterministic."""
        self._noise = np.random.default_rng(seed)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """The action at one observation or a batch of them, as in Stable-Baselines3.

        `deterministic=True` gives the policy's mode, which is what evaluations and attacks play; otherwise a policy
        that is a distribution draws from it. A policy that remembers (a planner's plan) gives a state to pass on to the
        next call; no state begins an episode, and so does `episode_start` where it is true.
        """
        obs = checked(observation, self.game.observation.size)
        noise = None
        if not deterministic:
            noise = self._noise.standard_normal((*obs.shape[:-1], self.game.agent.size), np.float32)
        return predict(self.policy, obs, state, episode_start, noise)

    def save(self, path: str | Path, **meta: Any) -> None:
        """Write the policy: safetensors and JSON, nothing that runs when it is loaded."""
        options = {"config": self.config.tree(), "game": record_of(self.game)}
        save_tree(path, training.SavedPolicy(self.pair, self.game), {**options, **meta})


def load(path: str | Path, env: Any = None, trust: bool = False) -> Agent:
    """The agent of a saved policy or of a run's folder.

    Nothing that a file names is run. A policy that was learned on an environment of one's own acts without it; to play
    in it and to learn on, give it (`env`), or have it imported by its stored name (`trust`).
    """
    folder, run = _policy_folder(Path(path))
    env = _adopted(env)
    if env is None and trust:
        env = training.env_of(stored_config(path), trust)
    config, saved = training.load_policy(folder, env)
    agent = object.__new__(CLASSES.get(config.algo, Agent))
    agent._env, agent.game, agent.config = env, saved.game, config
    agent._clear()
    agent._pair, agent._folder = saved.players, run.folder if run else None
    agent.episodes = len(run.metrics()) if run else config.episodes
    return agent


def stored_config(path: str | Path) -> TrainConfig:
    """The configuration that a saved policy or a run's policy was learned with."""
    return training.policy_config(_policy_folder(Path(path))[0])


def _policy_folder(path: Path) -> tuple[Path, Run | None]:
    """The folder of a policy, and the run that it belongs to."""
    run = Run.open(path) if (path / "config.json").exists() else None
    folder = path / "policy" if run else path
    if not folder.is_dir():
        raise UsageError(f"{path} holds no run and no policy: check the path")
    return folder, run


def _adopted(env: Any) -> ZeroSumEnv | None:
    if env is None or isinstance(env, ZeroSumEnv):
        return env
    if isinstance(env, JaxGame):
        return ZeroSumEnv(env)
    raise UsageError(f"env is a {type(env).__name__}: give what rhucrl.make or rhucrl.wrap returned")


@contextlib.contextmanager
def _shown(progress: Any, verbose: int | None, total: int, label: str) -> Iterator[Any]:
    """What is shown of the episodes: a bar or lines, somebody's own object with `update`, or nothing."""
    if not isinstance(progress, bool | None):
        yield progress
        return
    if progress is None:
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules if verbose is None else bool(verbose)
    if not progress:
        yield SILENT
        return
    with Progress(total, label) as bar:
        yield bar


class _Row(Agent):
    """An agent whose row of the algorithm table is fixed."""

    algo: str

    def __init_subclass__(cls, algo: str | None = None) -> None:
        cls.algo = algo or cls.algo

    def __init__(self, env: Any, seed: int = 0, **options: Any):
        super().__init__(env, self.algo, seed, **options)


class RHUCRL(_Row, algo="rh-ucrl"):
    """An optimistic agent and a pessimistic adversary (`eq:rhucrl`)."""


class BestResponse(_Row, algo="best-response"):
    """An optimistic agent and a greedy adversary (`eq:best-response`)."""


class MaxiMinMB(_Row, algo="maximin-mb"):
    """Expected performance for both players (`eq:minimax`)."""


class HUCRL(_Row, algo="h-ucrl"):
    """An optimistic agent without an adversary (Curi et al. 2020)."""


class Greedy(_Row, algo="greedy"):
    """Expected performance without an adversary: no exploration."""


class MaxiMinMF(_Row, algo="maximin-mf"):
    """Soft actor-critic for both players, without a model."""


class ARDDPG(_Row, algo="ar-ddpg"):
    """Deterministic policies with a critic of the mixed action (Tessler et al. 2019)."""


class RARL(_Row, algo="rarl"):
    """PPO for agent and adversary (Pinto et al. 2017)."""


class RAP(_Row, algo="rap"):
    """PPO against a population of adversaries (Vinitsky et al. 2020)."""


class EPOpt(_Row, algo="ep-opt"):
    """PPO on the worst fifth of random parameters (Rajeswaran et al. 2017)."""


class DomainRandomization(_Row, algo="domain-randomization"):
    """PPO on random parameters."""


class SAC(_Row, algo="sac"):
    """Soft actor-critic without an adversary (Haarnoja et al. 2018)."""


class PPO(_Row, algo="ppo"):
    """PPO without an adversary (Schulman et al. 2017)."""


CLASSES: dict[str, type[_Row]] = {row.algo: row for row in _Row.__subclasses__()}
NAMES = {algo: row.__name__ for algo, row in CLASSES.items()}
