"""The agent as users of Stable-Baselines3 know one: learn, predict, save, load."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from rhucrl import protocol, training
from rhucrl.compilation import enable_cache
from rhucrl.config import TrainConfig
from rhucrl.envs.face import ZeroSumEnv
from rhucrl.envs.game import Game, JaxGame
from rhucrl.errors import UsageError
from rhucrl.solvers.actor_critic import world
from rhucrl.solvers.policies import predict
from rhucrl.trees import load_tree, read_meta, save_tree


class Agent:
    """An algorithm, its environment and, once it has learned, its output policy."""

    def __init__(self, env: Any, algo: str = "rh-ucrl", seed: int = 0, **options: Any):
        self.env: ZeroSumEnv = env if hasattr(env, "game") else ZeroSumEnv(env)
        place = {"env": "pendulum", **self.game.options()}
        self.config = TrainConfig.preset(**{**place, "algo": algo, "seed": seed, **options})
        self.state: Any = None
        self._pair: Any = None
        self._folder: Path | None = None

    def learn(self, episodes: int = 30, run_dir: str | Path | None = None, progress: Any = None) -> Agent:
        """Learn for `episodes` real episodes; with a `run_dir` the run is saved there and can be resumed."""
        enable_cache()
        config = dataclasses.replace(self.config, episodes=episodes, **self.game.options())
        progress = progress or training.Silent()
        if run_dir is not None:
            self.state = training.train(config, run_dir, progress, self.env)
        else:
            its = training.protocol_of(config)
            state = its.initial(config, self.env)
            for index in range(episodes):
                state, metrics = its.episode(config, self.env, state, index)
                progress.update(index + 1, f"return {metrics['return']:.0f}")
            self.state = state
        self.config, self._pair = config, self.state.output
        return self

    @property
    def game(self) -> Game:
        return self.env.game

    @property
    def policy(self) -> Any:
        """The output policy: a pure batched function of observations."""
        return self.pair.policy

    @property
    def pair(self) -> Any:
        if self._pair is None:
            raise UsageError("this agent has not learned yet: call learn(), or rhucrl.load() a saved one")
        return self._pair

    @property
    def learned(self) -> Any:
        """All that it has learned: the last state of its run, with the model and the critics."""
        if self.state is None and self._folder is not None:
            self.state = training.last_state(self._folder)
        if self.state is None:
            raise UsageError("a saved policy has no model and no critics: rhucrl.load() the folder of its run")
        return self.state

    @property
    def model(self) -> Any:
        """The dynamics model that it has learned."""
        if not hasattr(self.learned, "model"):
            raise UsageError(f"{self.config.algo} learns no model: plan with that of rh-ucrl, or with a known one")
        return self.learned.model

    @property
    def limits(self) -> Any:
        """The range of what it has seen, where the game does not say what is possible."""
        if isinstance(self.game, JaxGame) or not hasattr(self.learned, "model"):
            return None
        return world(self.game, self.model, self.learned.replay).limits

    @property
    def value(self) -> Any:
        """The critic of the agent's problem: a batched function of observations, in the units of the reward."""
        if not hasattr(self.learned, "model"):
            raise UsageError(f"{self.config.algo} has no critic of states: take that of an agent that learns a model")
        return protocol.value(self.config, self.game, self.learned)

    @property
    def opponent(self) -> Any:
        """The adversary that it learned with, as an answer to state and action."""
        return training.protocol_of(self.config).deployed(self.config, self.pair, self.game)

    def adversary(self, obs: Array, time: Array) -> Array:
        """The same as a function of the state and the step."""
        return self.opponent(obs, self.policy(obs))

    def __call__(self, obs: Array) -> Array:
        return self.policy(obs)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, Any]:
        """The action at one observation or a batch of them; the signature is Stable-Baselines3's.

        A policy that remembers (a planner's plan) gives a state to pass on to the next call; None begins an episode.
        """
        return predict(self.policy, observation, state)

    def save(self, path: str | Path, **meta: Any) -> None:
        """Write the policy: safetensors and JSON, nothing that runs when it is loaded."""
        save_tree(path, self.pair, {"config": dataclasses.asdict(self.config), **meta})


def load(path: str | Path) -> Agent:
    """The agent of a saved policy or of a run's folder."""
    path = Path(path)
    folder = path / "policy" if (path / "config.json").exists() else path
    if not folder.is_dir():
        raise UsageError(f"{path} holds no run and no policy: check the path")
    meta = read_meta(folder)
    if "config" not in meta:
        raise UsageError(f"{folder} holds no policy: name a run's folder or a saved policy")
    config = training.config_of(folder, meta["config"])
    pair, _ = load_tree(folder, training.pair_like(config))
    agent = Agent(training.env_of(config))
    agent.config, agent._pair, agent._folder = config, pair, path if folder != path else None
    return agent


def algorithm(name: str) -> type[Agent]:
    """The agent class of a row of the table."""

    class Row(Agent):
        __doc__ = f"The agent of the row {name!r} of the algorithm table."

        def __init__(self, env: Any, seed: int = 0, **options: Any):
            super().__init__(env, name, seed, **options)

    return Row


RHUCRL, HUCRL, BestResponse = algorithm("rh-ucrl"), algorithm("h-ucrl"), algorithm("best-response")
MaxiMinMB, Greedy, MaxiMinMF = algorithm("maximin-mb"), algorithm("greedy"), algorithm("maximin-mf")
ARDDPG, RARL, RAP = algorithm("ar-ddpg"), algorithm("rarl"), algorithm("rap")
EPOpt, DomainRandomization = algorithm("ep-opt"), algorithm("domain-randomization")
SAC, PPO = algorithm("sac"), algorithm("ppo")

__all__ = [
    "ARDDPG", "HUCRL", "PPO", "RAP", "RARL", "RHUCRL", "SAC", "Agent", "BestResponse", "DomainRandomization", "EPOpt",
    "Greedy", "MaxiMinMB", "MaxiMinMF", "load",
]  # fmt: skip
