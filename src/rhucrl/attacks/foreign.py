"""Anybody's policy by its name: a run, a saved policy, a model of Stable-Baselines3 or SBX, an ONNX file, a function.

Nothing of this is imported before it is needed.
"""

from __future__ import annotations

import importlib
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rhucrl.attacks.reference import reference
from rhucrl.envs import imported
from rhucrl.envs.robots import ROBOTS, turned
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError

FILES = (".zip", ".onnx")
LIBRARIES = {"stable_baselines3": "stable-baselines3", "sbx": "sbx-rl", "sb3_contrib": "sb3-contrib"}
LARGEST = 1 << 30  # bytes of a policy's file, after inflating
FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64}
SEEN = 10.0  # Gymnasium clips the velocities of the robots that can fall


def load_policy(name: str, env: ZeroSumEnv, trust: bool = False) -> Any:
    """The policy that `name` stands for, for an environment; a file that holds code is loaded with `trust` only."""
    path = Path(name)
    if path.is_dir():
        from rhucrl.training.agent import load

        return load(path, env)
    if path.suffix in FILES and not path.is_file():
        raise UsageError(f"{path} is no file: check the path")
    if path.suffix == ".zip":
        return ForeignModel(from_zip(path, trust), env)
    if path.suffix == ".onnx":
        return ForeignModel(Onnx(path), env)
    return imported(name) if ":" in name else reference(name, env)


def fingerprint(name: str) -> int | None:
    """Tells one policy from another of the same name; None where that is impossible."""
    path = Path(name)
    path = next((file for file in (path / "policy" / "arrays.safetensors", path / "arrays.safetensors", path)
                 if file.is_file()), path)  # fmt: skip
    return zlib.crc32(path.read_bytes()) if path.is_file() else None


class ForeignModel:
    """A model with `predict` that may have learned from Gymnasium's own observations of a robot."""

    def __init__(self, model: Any, env: ZeroSumEnv):
        self.model, self.seen = model, translation(model.observation_space.shape, env)

    def predict(self, observation: Any, state: Any = None, deterministic: bool = True) -> tuple[np.ndarray, Any]:
        return self.model.predict(self.seen(np.asarray(observation)), deterministic=deterministic)[0], state


def translation(shape: tuple[int, ...], env: ZeroSumEnv) -> Callable[[np.ndarray], np.ndarray]:
    """From an environment's observations to those that a model of this input shape has learned from."""
    ours: Any = env.observation_space.shape
    if shape == ours:
        return lambda obs: obs
    robot = ROBOTS.get(getattr(env.game, "name", ""))
    if robot is None or not robot.hidden or shape != (ours[0] - robot.hidden,):
        raise UsageError(f"the model sees observations of shape {shape}, this environment's have {ours}: name its own")
    velocities = ours[0] // 2
    edge = SEEN if robot.health else np.inf

    def native(obs: np.ndarray) -> np.ndarray:
        angles, rates = obs[robot.hidden : velocities], obs[velocities:]
        if robot.chain:
            drift = turned(rates[: robot.hidden], angles[0])
            others = rates[robot.hidden :]
            rates = np.concatenate([drift - robot.chain.drift(angles, others), others])
        return np.concatenate([angles, np.clip(rates, -edge, edge)])

    return native


def from_zip(path: Path, trust: bool = False) -> Any:
    """A model of Stable-Baselines3 or SBX, by the loader of its own library."""
    not_ours = UsageError(f"{path} is no model of Stable-Baselines3 or SBX: name a file that model.save() wrote")
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(row.file_size for row in archive.infolist()) > LARGEST:
                raise UsageError(f"{path} would inflate to more than {LARGEST >> 20} MiB: it is no policy")
            data = json.loads(archive.read("data"))
        library, algorithm, *_ = data["policy_class"]["__module__"].split(".")
    except UsageError:
        raise
    except Exception as error:  # what a damaged archive leads to is not documented
        raise not_ours from error
    if algorithm == "common":  # policies that PPO and A2C share
        algorithm = "PPO" if "clip_range" in data else "A2C"
    if library not in LIBRARIES:
        raise UsageError(f"{path} was saved by {library!r}, which is unknown: load it yourself, by module:function")
    if not trust:
        raise UsageError(f"loading {path} runs code that the file holds: say --trust (trust=True) if you trust it")
    try:
        loader = getattr(importlib.import_module(library), algorithm.upper())
    except ImportError:
        raise UsageError(f"{path} needs {LIBRARIES[library]}: pip install {LIBRARIES[library]}") from None
    except AttributeError:
        raise UsageError(f"{library} has no algorithm {algorithm.upper()!r}: load {path} by module:function") from None
    try:
        return loader.load(path)
    except Exception as error:
        raise UsageError(f"{library} cannot load {path} ({type(error).__name__}: {error}): save it again") from error


class Onnx:
    """A network in an ONNX file: its first input is an observation or a batch of them, its first output the action."""

    def __init__(self, path: Path):
        try:
            import onnxruntime
        except ImportError:
            raise UsageError(f"{path} needs onnxruntime: pip install 'rhucrl[onnx]'") from None
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} has more than {LARGEST >> 20} MiB: it is no policy")
        try:
            self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:
            raise UsageError(f"{path} cannot be read as ONNX ({error}): export it again") from None
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        if not inputs or not outputs or inputs[0].type not in FLOATS or not self._is_vector(inputs[0].shape):
            raise UsageError(f"{path} is no policy: its first input has to be an observation, or a batch of them")
        self.path, self.input = path, inputs[0]
        self.batched = len(self.input.shape) > 1
        self.dtype = FLOATS[self.input.type]

    @staticmethod
    def _is_vector(shape: Any) -> bool:
        return len(shape or ()) in (1, 2) and isinstance(shape[-1], int) and shape[-1] > 0

    @property
    def observation_space(self) -> Any:
        return gym.spaces.Box(-np.inf, np.inf, tuple(self.input.shape[-1:]))

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[np.ndarray, None]:
        obs = np.asarray(observation, self.dtype)
        try:
            action = np.asarray(self.session.run(None, {self.input.name: obs[None] if self.batched else obs})[0], float)
            return action[0] if self.batched else action, None
        except Exception as error:
            raise UsageError(f"{self.path} fails at an observation ({error}): export it again") from None
