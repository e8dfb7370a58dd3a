"""Policies of other people: models, networks in files, functions; and what is said of those that do not fit."""

import json
import sys
import types
import zipfile

import gymnasium as gym
import numpy as np
import onnx
import pytest

from rhucrl.attacks.arena import HostArena, gains
from rhucrl.attacks.foreign import fingerprint, load_policy, translation
from rhucrl.envs import make
from rhucrl.envs.robots import ROBOTS
from rhucrl.errors import UsageError

WEIGHT = np.linspace(-1, 1, 12 * 3).reshape(12, 3).astype(np.float32)


def network(path, inputs=12):
    """tanh(obs WEIGHT), as any exporter writes it."""
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "w"], ["x"]), helper.make_node("Tanh", ["x"], ["action"])], "policy",
        [helper.make_tensor_value_info("obs", onnx.TensorProto.FLOAT, ["batch", inputs])],
        [helper.make_tensor_value_info("action", onnx.TensorProto.FLOAT, ["batch", 3])],
        [onnx.numpy_helper.from_array(WEIGHT[:inputs], "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, path)


@pytest.mark.parametrize("inputs", [12, 11])
def test_a_network_in_a_file_plays(tmp_path, inputs):
    """11 inputs: it has learned from Gymnasium's own observations, without the mean velocity in front."""
    network(tmp_path / "net.onnx", inputs)
    env = make("hopper", "adversarial", 10.0, horizon=20)
    policy = load_policy(str(tmp_path / "net.onnx"), env)
    seen = translation((inputs,), env)
    same = lambda obs: np.tanh(seen(obs).astype(np.float32) @ WEIGHT[:inputs])  # noqa: E731
    expected = gains(HostArena(same, env), None, [0, 1])
    np.testing.assert_allclose(gains(HostArena(policy, env), None, [0, 1]), expected, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name, robot in ROBOTS.items() if robot.hidden])
def test_native_observations_are_gymnasiums(name):
    env, plain = make(name), gym.make(ROBOTS[name].gymnasium)
    obs, native = env.reset(seed=3)[0], plain.reset(seed=3)[0]
    seen = translation(native.shape, env)
    generator = np.random.default_rng(0)
    for _ in range(30):
        np.testing.assert_allclose(seen(obs), native, rtol=0, atol=1e-14 if ROBOTS[name].chain else 0)  # turned back
        action = generator.uniform(plain.action_space.low, plain.action_space.high)
        obs = env.step({"agent": action, "adversary": env.neutral})[0]
        native = plain.step(action)[0]


def model_file(path, home="stable_baselines3.sac.policies", **more):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {"__module__": home}, **more}))
    return str(path)


@pytest.mark.parametrize(
    ("home", "more", "algorithm"),
    [
        ("stable_baselines3.sac.policies", {}, "SAC"),
        ("stable_baselines3.common.policies", {"clip_range": 0.2}, "PPO"),
        ("stable_baselines3.common.policies", {}, "A2C"),
        ("sbx.td3.policies", {}, "TD3"),
    ],
)
def test_a_model_is_loaded_by_its_own_library(home, more, algorithm, tmp_path, monkeypatch):
    class Loaded:
        observation_space = gym.spaces.Box(-1, 1, (4,))

        def predict(self, observation, deterministic):
            assert deterministic
            return observation[:1], None

    class Loader:
        @staticmethod
        def load(path):
            return Loaded()

    module = types.ModuleType(home.split(".")[0])
    setattr(module, algorithm, Loader)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    env = make("inverted-pendulum", "adversarial", 3.0, horizon=20)
    policy = load_policy(model_file(tmp_path / "model.zip", home, **more), env, trust=True)
    np.testing.assert_array_equal(policy.predict(np.array([0.5, 1, 2, 3]))[0], [0.5])


def test_what_does_not_fit_is_told(tmp_path):
    env = make("inverted-pendulum", "adversarial", 3.0)
    network(tmp_path / "net.onnx")
    (tmp_path / "text.zip").write_text("no archive")
    (tmp_path / "text.onnx").write_text("no network")
    strange = model_file(tmp_path / "strange.zip", "mine.sac.policies")
    for name, told in [
        (str(tmp_path / "net.onnx"), r"shape \(12,\), this environment's have \(4,\)"),
        (str(tmp_path / "text.zip"), "model.save"),
        (str(tmp_path / "text.onnx"), "export it again"),
        (str(tmp_path / "none.zip"), "no file"),
        (strange, "'mine', which is unknown"),
    ]:
        with pytest.raises(UsageError, match=told):
            load_policy(name, env)
    absent = model_file(tmp_path / "absent.zip", "sb3_contrib.tqc.policies")
    with pytest.raises(UsageError, match="pip install sb3-contrib"):
        load_policy(absent, env, trust=True)


def test_fingerprints_tell_policies_apart(tmp_path):
    first, second = model_file(tmp_path / "a.zip"), model_file(tmp_path / "b.zip", clip_range=1)
    assert fingerprint(first) not in (fingerprint(second), None)
    assert fingerprint("lqr") is None
