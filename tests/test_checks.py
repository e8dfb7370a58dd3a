"""The diagnosis of environments: every fault is found and named, sound ones pass."""

import re

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import rhucrl
from rhucrl.cli import main as cli
from rhucrl.envs import NAMES, make
from rhucrl.envs.check_env import check_env


class Point(gym.Env):
    """A sound environment: a point on a line, which ends beyond 1."""

    def __init__(self, **faults):
        self.faults = faults
        self.observation_space = faults.get("observations", gym.spaces.Box(-9, 9, (1,), np.float64))
        self.action_space = faults.get("actions", gym.spaces.Box(-1, 1, (1,), np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed if "deaf" not in self.faults else None)
        self.time, self.place = 0, self.np_random.uniform(-0.1, 0.1, 1)
        return (self.place.copy(), {}) if "old" not in self.faults else self.place.copy()

    def step(self, action):
        noise = np.random.default_rng() if "noisy" in self.faults else None
        move = 0.6 * np.asarray(action, float) + (0.01 * noise.normal(size=1) if noise else 0.0)
        reward, self.time = float(-np.square(self.place).sum()), self.time + 1
        if "alias" in self.faults:
            self.place += move
            return self.place, reward, False, False, {}
        self.place = self.place + move
        ended = bool(self.place[0] > 1)
        if self.faults.get("limit") == self.time:
            ended = True
        if "limit" in self.faults:
            ended = ended and self.faults["limit"] == self.time
        seen = self.place.copy()
        if "nan" in self.faults and self.time == 7:
            seen[0] = np.nan
        if "wide" in self.faults and self.time == 7:
            seen[0] = 12.5
        if "fails" in self.faults and self.time == 7:
            raise ZeroDivisionError("no luck")
        kind = int if "number" in self.faults else bool
        return seen, reward if "infinite" not in self.faults else np.inf, kind(ended), False, {}


def reward(obs, executed, adversary, next_obs):
    return -jnp.square(obs[..., 0])


def ends(next_obs):
    return next_obs[..., 0] > 1


def game(**options):
    inner = gym.wrappers.TimeLimit(Point(), 60)
    return rhucrl.wrap(inner, **({"reward": reward, "terminated": ends} | options))


def texts(findings, kind="wrong"):
    return [finding.text for finding in findings if finding.kind == kind]


@pytest.mark.parametrize(
    "env",
    [lambda: Point(), game, lambda: gym.make("Hopper-v5"), lambda: rhucrl.wrap(gym.make("Hopper-v5"), "adversarial")],
    ids=("plain", "game", "hopper", "forced hopper"),
)
def test_sound_environments_pass(env):
    assert texts(check_env(env(), 200)) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", ("adversarial", "parameter"))
def test_all_environments_here_pass(name, setting):
    findings = check_env(make(name, setting), 60)
    assert texts(findings) == []


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ({"observations": gym.spaces.Discrete(3)}, "Discrete space, not a Box"),
        ({"observations": gym.spaces.Box(0, 1, (2, 2))}, "one axis of floats"),
        ({"actions": gym.spaces.Discrete(3)}, "only continuous control"),
        ({"actions": gym.spaces.Box(-np.inf, np.inf, (1,))}, "unbounded"),
        ({"observations": gym.spaces.Box(-9, 9, (2,), np.float64)}, r"shape \(1,\), the space \(2,\)"),
        ({"observations": gym.spaces.Box(-9, 9, (1,), np.float32)}, "float64, their space is float32"),
        ({"nan": True}, "not every observation is finite: step 7"),
        ({"infinite": True}, "not every reward is finite"),
        ({"wide": True}, "is 12.5, outside its space"),
        ({"deaf": True}, "different starts"),
        ({"noisy": True}, "the same actions step 1 differs"),
        ({"alias": True}, "return a copy"),
        ({"old": True}, "reset.* returned a ndarray"),
        ({"fails": True}, "step failed: ZeroDivisionError: no luck"),
        ({"number": True}, "terminated is a int, not a bool"),
        ({"limit": 20}, "exactly 20 steps: a time limit is truncated=True"),
    ],
    ids=str,
)
def test_faults_of_an_environment_are_named(faults, told):
    (text,) = texts(check_env(Point(**faults), 200))
    assert re.search(told, text), text


def test_something_else_is_no_environment():
    assert "not a Gymnasium environment" in texts(check_env(3))[0]


class Pushy:
    """Pushes by its value, and a little more."""

    box, neutral = (-np.ones(1), np.ones(1)), np.zeros(1)

    def __init__(self, more=0.0, effect=1.0):
        self.more, self.effect = more, effect

    def apply(self, env, value):
        if hasattr(env.unwrapped, "place"):
            env.unwrapped.place = env.unwrapped.place + self.effect * value[0] + self.more


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"reward": lambda o, e, a, n: -jnp.square(n[..., 0])}, "reward function disagrees.*by up to.*at obs="),
        ({"reward": lambda o, e, a, n: -jnp.square(o[..., 0]) * jnp.nan}, "reward function disagrees"),
        ({"reward": lambda o, e, a, n: -jnp.square(o[0])}, "gives shape"),
        ({"reward": lambda o: o}, "fails on a batch.*TypeError"),
        ({"terminated": lambda n: n[..., 0] > 0.5}, "terminated function disagrees.*says 1, the environment 0"),
        ({"terminated": None}, "terminated function disagrees.*says 0, the environment 1"),
        ({"reward_range": (-0.1, 0)}, "widen reward_range"),
        ({"disturbance": Pushy(more=0.01)}, "neutral value"),
    ],
)
def test_faults_of_a_game_are_named(options, told):
    found = texts(check_env(game(**options), 200))
    assert any(re.search(told, text) for text in found), found


def test_an_adversary_without_effect_is_noted():
    assert "no effect" in texts(check_env(game(disturbance=Pushy(effect=0.0)), 100), "note")[0]
    assert texts(check_env(game(disturbance=Pushy(effect=0.1)), 100), "note") == []


def test_what_is_to_be_learned_is_noted():
    assert len(texts(check_env(game(reward="learned", terminated="learned"), 60), "note")) == 2


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "import gymnasium, rhucrl\n"
        "def good(): return gymnasium.make('Pendulum-v1')\n"
        "def bad(): return rhucrl.wrap(good(), reward=lambda o, e, a, n: o[..., 0], terminated=None)\n"
        "def broken(): return 1 / 0\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check-env", "mine:good", "--steps", "50"]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert cli.main(["check-env", "mine:bad", "--steps", "50"]) == 2
    assert "reward function disagrees" in capsys.readouterr().out
    assert cli.main(["check-env", "mine:broken"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().out
    for arguments, told in (
        (["mine"], "module:make"),
        (["mine:no"], "no function"),
        (["mine:good", "--steps", "0"], "1"),
    ):
        assert cli.main(["check-env", *arguments]) == 2
        assert told in capsys.readouterr().err
