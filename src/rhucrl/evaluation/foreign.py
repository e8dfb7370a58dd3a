"""Anybody's policy by its name: a run, a saved policy, a model of Stable-Baselines3 or SBX, an ONNX file, a function.

Nothing of this is imported before it is needed.
"""

from __future__ import annotations

import importlib
import json
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rhucrl.envs import imported
from rhucrl.envs.face import ZeroSumEnv
from rhucrl.envs.robots import ROBOTS
from rhucrl.errors import UsageError
from rhucrl.evaluation.reference import reference

FILES = (".zip", ".onnx")
LIBRARIES = {"stable_baselines3": "stable-baselines3", "sbx": "sbx-rl", "sb3_contrib": "sb3-contrib"}
SEEN = 10.0  # Gymnasium clips the velocities of the robots that can fall


def load_policy(name: str, env: ZeroSumEnv) -> Any:
    """The policy that `name` stands for, for an environment."""
    path = Path(name)
    if path.is_dir():
        from rhucrl.agent import load

        return load(path)
    if path.suffix in FILES and not path.is_file():
        raise UsageError(f"{path} is no file: check the path")
    if path.suffix == ".zip":
        return Model(from_zip(path), env)
    if path.suffix == ".onnx":
        return Model(Onnx(path), env)
    return imported(name) if ":" in name else reference(name, env)


def fingerprint(name: str) -> int | None:
    """Tells one policy from another of the same name; None where that is impossible."""
    path = Path(name)
    path = next((file for file in (path / "policy" / "arrays.safetensors", path / "arrays.safetensors", path)
                 if file.is_file()), path)  # fmt: skip
    return zlib.crc32(path.read_bytes()) if path.is_file() else None


class Model:
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
        return np.concatenate([obs[robot.hidden : velocities], np.clip(obs[velocities:], -edge, edge)])

    return native


def from_zip(path: Path) -> Any:
    """A model of Stable-Baselines3 or SBX, by the loader of its own library."""
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
        library, algorithm, *_ = data["policy_class"]["__module__"].split(".")
    except (zipfile.BadZipFile, KeyError, ValueError):
        told = f"{path} is no model of Stable-Baselines3 or SBX"
        raise UsageError(f"{told}: name a file that model.save() wrote") from None
    if algorithm == "common":  # policies that PPO and A2C share
        algorithm = "PPO" if "clip_range" in data else "A2C"
    if library not in LIBRARIES:
        raise UsageError(f"{path} was saved by {library!r}, which is unknown: load it yourself, by module:function")
    warnings.warn(f"loading {path} runs code that the file contains: load only what you trust", stacklevel=2)
    try:
        loader = getattr(importlib.import_module(library), algorithm.upper())
    except ImportError:
        raise UsageError(f"{path} needs {LIBRARIES[library]}: pip install {LIBRARIES[library]}") from None
    return loader.load(path)


class Onnx:
    """A network in an ONNX file: its first input is an observation or a batch of them, its first output the action."""

    def __init__(self, path: Path):
        try:
            import onnxruntime
        except ImportError:
            raise UsageError(f"{path} needs onnxruntime: pip install 'rhucrl[onnx]'") from None
        try:
            self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:
            raise UsageError(f"{path} cannot be read as ONNX ({error}): export it again") from None
        self.input = self.session.get_inputs()[0]
        self.batched = len(self.input.shape) > 1
        self.dtype = np.float64 if "double" in self.input.type else np.float32

    @property
    def observation_space(self) -> Any:
        return np.empty(self.input.shape[-1:])

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[np.ndarray, None]:
        obs = np.asarray(observation, self.dtype)
        action = np.asarray(self.session.run(None, {self.input.name: obs[None] if self.batched else obs})[0])
        return action[0] if self.batched else action, None
