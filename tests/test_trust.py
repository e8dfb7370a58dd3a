"""Files from strangers: nothing that they name or hold is run. Policies of one's own environment are not lost."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rhucrl
from probes import Probe, enable_cache
from rhucrl.attacks.foreign import load_policy
from rhucrl.cli import main as cli
from rhucrl.errors import UsageError
from rhucrl.storage.trees import save_tree
from rhucrl.training import loop as training

enable_cache()

TINY = {"width": 8, "batch": 8, "updates": 0.1, "random_episodes": 1}
MODEL = {"model_width": 8, "model_rounds": 1, "round": 2, "solver": "planner", "plan_steps": 2,
         "plan_samples": 100, "plan_rounds": 1, "model_batch": 8, "random_episodes": 1}  # fmt: skip


def own(**options) -> rhucrl.ZeroSumEnv:
    return rhucrl.wrap(gym.make("Pendulum-v1", max_episode_steps=12), "action", 0.2, **options)


def paid(obs, executed, adversary, next_obs):
    return -obs[..., 0] - executed[..., 0] ** 2


@pytest.fixture
def observation():
    return np.array([[0.6, -0.8, 0.5]], np.float32)


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """A folder with a module that leaves a trace when it is imported; it is the current folder."""
    place = tmp_path / "downloads"
    (place / "downloaded").mkdir(parents=True)
    mark = place / "it-ran"
    code = f"open({str(mark)!r}, 'w').close()\ndef make(): raise SystemExit('ran')\n"
    (place / "downloaded" / "payload.py").write_text(code)
    (place / "payload.py").write_text(code)
    monkeypatch.chdir(place)
    return mark


def hostile_run(folder: Path, name: str) -> None:
    """A run of one's own environment whose files name somebody's code."""
    agent = rhucrl.SAC(own(), **TINY).learn(1, run_dir=folder)
    options = training.TrainConfig.preset(**{**vars(agent.config), "env": name})
    agent.config = options
    agent.save(folder / "policy")
    agent.save(folder / "trained", adversary="trained")
    record = json.loads((folder / "config.json").read_text())
    record["config"]["env"] = name
    (folder / "config.json").write_text(json.dumps(record))


@pytest.mark.parametrize("name", ["downloaded.payload:make", "payload:make", "os:abort", "own"])
def test_nothing_that_a_folder_names_is_run(name, marker, observation, capsys):
    run = Path("run")
    hostile_run(run, name)
    assert rhucrl.load(run).predict(observation, deterministic=True)[0].shape == (1, 1)
    assert rhucrl.load(run / "policy").policy is not None
    assert rhucrl.load_adversary(run / "trained")(observation, 0).shape == (1, 1)
    load_policy(str(run), own())
    for refused in (lambda: rhucrl.load(run).env, lambda: rhucrl.load(run).learn(1), lambda: rhucrl.Agent.resume(run)):
        with pytest.raises(UsageError, match="env="):
            refused()
    for command in (
        ["evaluate", "run"], ["evaluate", "run", "--protocol", "paper"], ["resume", "run"], ["attack", "run"],
        ["attack", "run/policy"], ["video", "run"], ["evaluate", "run", "--sweep", "mass=.5:1:3"],
        ["attack", "run", "--save", "found"], ["resume", "."], ["evaluate", "."],
    ):  # fmt: skip
        assert cli.main(command) == 2, command
        assert "--env" in capsys.readouterr().err, command
    assert not marker.exists()


def test_trust_runs_what_is_named_and_env_gives_it(tmp_path, monkeypatch, observation, capsys):
    (tmp_path / "my_pendulum.py").write_text(
        "import gymnasium\ndef make(): return gymnasium.make('Pendulum-v1', max_episode_steps=12)\n"
        "def other(): return gymnasium.make('Pendulum-v1', max_episode_steps=12)\n"
    )
    monkeypatch.chdir(tmp_path)
    hostile_run(Path("run"), "my_pendulum:make")
    assert rhucrl.load("run", trust=True).env.game.name == "my_pendulum:make"
    assert rhucrl.load("run", env=own()).learn(1, verbose=0).episodes == 2
    assert cli.main(["resume", "run", "--episodes", "3", "--env", "my_pendulum:other"]) == 0
    assert cli.main(["resume", "run", "--episodes", "4", "--trust"]) == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 4
    capsys.readouterr()
    assert cli.main(["attack", "run", "--budget", "quick", "--only", "constant", "--trust"]) == 0
    trusted = capsys.readouterr().out
    assert cli.main(["attack", "run", "--env", "my_pendulum:other", "--budget", "quick", "--only", "constant"]) == 0
    assert "constant" in trusted and "constant" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "my_pendulum")


class Payload:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def hostile_zip(path: Path, mark: Path) -> None:
    import cloudpickle

    serialized = base64.b64encode(cloudpickle.dumps(Payload(mark))).decode()
    data = {"policy_class": {"__module__": "stable_baselines3.sac.policies", ":serialized:": serialized}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(data))


def test_a_zip_is_not_loaded_without_trust(tmp_path, capsys):
    mark, path = tmp_path / "it-ran", tmp_path / "model.zip"
    hostile_zip(path, mark)
    env = rhucrl.make("pendulum", horizon=5)
    with pytest.raises(UsageError, match="--trust"):
        load_policy(str(path), env)
    for command in (["attack", str(path), "--env", "pendulum"], ["video", str(path), "--env", "pendulum"]):
        assert cli.main(command) == 2
        assert "--trust" in capsys.readouterr().err
    assert not mark.exists()


def test_a_zip_is_not_inflated_before_its_size_is_known(tmp_path):
    bomb = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("data", "w", force_zip64=True) as data,
    ):
        for _ in range(1100):
            data.write(bytes(1 << 20))
    script = (
        "import resource, sys; from rhucrl.attacks.foreign import from_zip; from pathlib import Path\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: from_zip(Path(sys.argv[1]), trust=True)\n"
        "except ValueError as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(bomb)], capture_output=True, text=True)
    told, megabytes = done.stdout.splitlines()
    assert "inflate" in told
    assert int(megabytes) < 200


@pytest.mark.parametrize("content", [
    b"", b"PK\x05\x06" + bytes(18), b"PK\x03\x04garbage", json.dumps([]), json.dumps({"policy_class": 3}), "[" * 3000,
    json.dumps({"policy_class": {"__module__": "stable_baselines3"}}), b"\xff\xfe",
    json.dumps({"policy_class": {"__module__": "stable_baselines3.no_such_thing.policies"}}),
])  # fmt: skip
@pytest.mark.parametrize("trust", [False, True])
def test_malformed_zips_are_told(content, trust, tmp_path):
    path = tmp_path / "model.zip"
    if isinstance(content, bytes):
        path.write_bytes(content)
    if not isinstance(content, bytes) or content == b"\xff\xfe":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("data", content)
    with pytest.raises(UsageError):
        load_policy(str(path), rhucrl.make("pendulum", horizon=5), trust)


@pytest.mark.parametrize("shape", [(), (2, 3, 4), ("n", "p"), (0,)])
def test_networks_that_take_no_observation_are_told(shape, tmp_path):
    import onnx
    from onnx import TensorProto, helper

    numbers = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "net", numbers[:1], numbers[1:])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "n.onnx")
    with pytest.raises(UsageError, match="observation"):
        load_policy(str(tmp_path / "n.onnx"), rhucrl.make("pendulum", horizon=5))


@pytest.mark.parametrize("change", [
    {"observation": 10**9}, {"observation": -1}, {"agent": "3"}, {"angles": [99]}, {"learned": ["os"]}, {"kind": 3},
    {"name": ["x"]}, {"horizon": 0},
])  # fmt: skip
def test_a_record_that_describes_no_game_is_refused(change, tmp_path):
    agent = rhucrl.SAC(own(), **TINY).learn(1)
    agent.save(tmp_path / "policy")
    meta = json.loads((tmp_path / "policy" / "meta.json").read_text())["record"]["meta"]
    save_tree(
        tmp_path / "policy", training.SavedPolicy(agent.pair, agent.game), {**meta, "game": meta["game"] | change}
    )
    with pytest.raises(UsageError):
        rhucrl.load(tmp_path / "policy")


@pytest.mark.parametrize("algorithm", [rhucrl.SAC, rhucrl.RARL])
def test_a_policy_of_ones_own_environment_outlives_its_process(algorithm, tmp_path, observation):
    agent = algorithm(own(), **{k: v for k, v in TINY.items() if algorithm is rhucrl.SAC or k == "width"}).learn(2)
    agent.save(tmp_path / "policy")
    np.save(tmp_path / "obs.npy", observation)
    script = (
        "import sys, numpy as np, rhucrl\n"
        "agent = rhucrl.load(sys.argv[1])\n"
        "action = agent.predict(np.load(sys.argv[2]), deterministic=True)[0]\n"
        "print(action.tolist(), np.asarray(agent.adversary(np.load(sys.argv[2]), 0)).tolist(), repr(agent))"
    )
    paths = str(tmp_path / "policy"), str(tmp_path / "obs.npy")
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, cwd=tmp_path)
    against = np.asarray(agent.adversary(observation, 0)).tolist()
    action = agent.predict(observation, deterministic=True)[0].tolist()
    assert done.stdout.strip() == f"{action} {against} {agent!r}", done.stderr


def test_a_planner_with_a_learned_reward_acts_and_one_with_an_owners_reward_asks_for_it(tmp_path, observation):
    for reward in ("learned", paid):
        env = own(reward=reward, terminated=None)
        agent = rhucrl.RHUCRL(env, **MODEL).learn(2)
        agent.save(tmp_path / "policy")
        action = agent.predict(observation[0])[0]
        if reward is paid:
            with pytest.raises(UsageError, match="env="):
                rhucrl.load(tmp_path / "policy").predict(observation[0])
            np.testing.assert_array_equal(rhucrl.load(tmp_path / "policy", env=env).predict(observation[0])[0], action)
        else:
            np.testing.assert_array_equal(rhucrl.load(tmp_path / "policy").predict(observation[0])[0], action)


def test_a_game_of_ones_own_class_is_given(tmp_path):
    game = Probe(horizon=5)
    small = {"pool": 16, "updates": 0.5, "batch": 8, "width": 8, "features": 8, "model_width": 8, "model_rounds": 1}
    agent = rhucrl.RHUCRL(game, **small).learn(2)
    assert agent.config.env == "own"
    agent.save(tmp_path / "policy")
    with pytest.raises(UsageError, match=r"'Probe'.*env="):
        rhucrl.load(tmp_path / "policy")
    again = rhucrl.load(tmp_path / "policy", env=game)
    np.testing.assert_array_equal(again.predict(np.ones(1))[0], agent.predict(np.ones(1))[0])


def test_a_policy_that_was_saved_without_its_game_is_still_read(tmp_path, observation):
    """Earlier versions saved the players alone; the environment's name says the rest, unless it is somebody's own."""
    agent = rhucrl.SAC(rhucrl.make("pendulum", "adversarial", horizon=5), **TINY).learn(1)
    save_tree(tmp_path / "old", agent.pair, {"config": agent.config.tree()})
    again = rhucrl.load(tmp_path / "old").predict(observation, deterministic=True)[0]
    np.testing.assert_array_equal(again, agent.predict(observation, deterministic=True)[0])
    save_tree(tmp_path / "own", agent.pair, {"config": agent.config.tree() | {"env": "os:abort"}})
    with pytest.raises(UsageError, match="env="):
        rhucrl.load(tmp_path / "own")


def test_an_adversary_of_another_setting_is_not_played(tmp_path):
    """A policy may be judged in another setting than it learned in; its adversary means something else there."""
    agent = rhucrl.RARL(own(), width=8).learn(1)
    other = rhucrl.wrap(gym.make("Pendulum-v1", max_episode_steps=12), "none")
    found = rhucrl.worst_case(agent, other, only=("constant",))
    assert found.nominal == found.worst
    with pytest.raises(UsageError, match="trained"):
        rhucrl.worst_case(agent, other, only=("trained",))


def test_an_environment_that_was_wrapped_keeps_its_setting_and_the_run_says_so(tmp_path, monkeypatch, capsys):
    (tmp_path / "wrapped.py").write_text(
        "import gymnasium, rhucrl\n"
        "def make(): return rhucrl.wrap(gymnasium.make('Pendulum-v1', max_episode_steps=12), 'action', 0.1)\n"
    )
    monkeypatch.chdir(tmp_path)
    tiny = ["--algo", "sac", "--episodes", "1", "--width", "8", "--batch", "8"]
    assert cli.main(["train", "wrapped:make", "--setting", "adversarial", *tiny]) == 2
    assert "wrapped with setting 'action', not 'adversarial'" in capsys.readouterr().err
    assert not os.path.exists("runs")
    assert cli.main(["train", "wrapped:make", *tiny, "--strength", "0.5", "--run-dir", "strong"]) == 0
    assert cli.main(["train", "wrapped:make", *tiny, "--run-dir", "weak"]) == 0
    stored = [json.loads(Path(run, "config.json").read_text())["config"] for run in ("strong", "weak")]
    assert [(row["setting"], row["mixture"], row["strength"]) for row in stored] == [
        ("action", "noisy", 0.5), ("action", "noisy", 0.1),
    ]  # fmt: skip
    assert float(rhucrl.load("strong", trust=True).env.game.strength) == pytest.approx(0.5)
    monkeypatch.delitem(sys.modules, "wrapped")
