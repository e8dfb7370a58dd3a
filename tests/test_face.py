"""The Gymnasium contract of a game and of its views, and the mistakes `make` answers."""

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rhucrl.envs import make
from rhucrl.envs.zero_sum_env import AdversaryView, AgentView
from rhucrl.errors import UsageError

SETTINGS = [
    {"setting": "none"},
    {"setting": "adversarial"},
    {"setting": "adversarial", "strength": 0.0},
    {"setting": "adversarial", "scope": "episode"},
    {"setting": "action"},
    {"setting": "action", "mixture": "probabilistic"},
    {"setting": "parameter"},
    {"setting": "action", "reward": "sparse"},
]
# Boxes are in physical units, and an adversary without strength has a box of one point: both are meant.
PHYSICAL = "ignore:.*symmetric and normalized space:UserWarning"
ONE_POINT = "ignore:.*maximum and minimum values are equal:UserWarning"


def push(obs):
    return np.ones((*obs.shape[:-1], 1), np.float32)


def both(env, agent=1.0):
    return {"agent": np.full(1, agent, np.float32), "adversary": env.neutral}


@pytest.mark.filterwarnings(PHYSICAL, ONE_POINT)
@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_gymnasium_accepts_the_environment_and_its_views(options):
    env = make(**options, horizon=20)
    for face in (env, AgentView(env), AdversaryView(env, push)):
        check_env(face, skip_render_check=True)


def test_step_gives_both_rewards_and_the_executed_action():
    env = make(setting="action", strength=0.25)
    env.reset(seed=0)
    action = {"agent": np.array([2.0], np.float32), "adversary": np.array([-2.0], np.float32)}
    _, reward, terminated, truncated, info = env.step(action)
    assert reward == pytest.approx(-(np.pi**2 + 0.001), rel=1e-6)
    assert info["adversary_reward"] == -reward
    assert info["executed_action"] == pytest.approx(1.0)
    assert not terminated and not truncated


def test_reward_equals_the_known_function():
    env = make(setting="adversarial")
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(20):
        action = env.action_space.sample()
        following, reward, *_, info = env.step(action)
        known = env.game.reward(*map(jnp.asarray, (obs, info["executed_action"], action["adversary"], following)))
        assert reward == pytest.approx(float(known), abs=1e-6)
        obs = following


def test_truncates_at_the_horizon():
    env = make(setting="adversarial", horizon=3)
    env.reset(seed=0)
    assert [env.step(both(env))[3] for _ in range(3)] == [False, False, True]


def test_episode_scope_holds_the_value_of_reset():
    env = make(setting="parameter")

    def speed(adversary):
        env.reset(seed=0, options={"adversary": np.array(adversary, np.float32)})
        return env.step(both(env))[0][2]

    assert speed([0.5]) == pytest.approx(2 * speed([1.0]), rel=1e-4)
    env.reset(seed=0)  # without a value the adversary is neutral again
    assert env.step(both(env))[0][2] == pytest.approx(speed([1.0]))
    with pytest.raises(UsageError, match="outside"):
        env.reset(options={"adversary": np.array([3.0])})
    with pytest.raises(UsageError, match="every step"):
        make(setting="adversarial").reset(options={"adversary": np.ones(2)})


@pytest.mark.parametrize("options", [SETTINGS[1], SETTINGS[5], SETTINGS[6]], ids=str)
def test_resumes_exactly(options):
    env, other = make(**options, horizon=10), make(**options, horizon=10)

    def play(env, rows):
        env.action_space.seed(5)
        for _ in range(8):
            obs, reward, _, truncated, _ = env.step(env.action_space.sample())
            rows.append((*obs, reward))
            if truncated:
                rows.append((*env.reset()[0], 0.0))
        return rows

    env.reset(seed=3)
    for _ in range(5):
        env.step(env.action_space.sample())
    saved = json.loads(json.dumps(env.get_state(), default=np.ndarray.tolist))
    expected = play(env, [])
    other.reset(seed=99)
    other.set_state(saved)
    assert play(other, []) == expected


def test_agent_view_against_a_fixed_adversary():
    env = make(setting="action", strength=0.5)
    view = AgentView(env, adversary=lambda obs, time: np.full(1, -2.0, np.float32) * (-1.0) ** int(time))
    view.reset(seed=0)
    executed = [view.step(np.ones(1, np.float32))[-1]["executed_action"][0] for _ in range(3)]
    assert executed == pytest.approx([-0.5, 1.5, -0.5])


def test_adversary_view_negates_the_reward():
    env = make(setting="action", strength=0.5)
    view = AdversaryView(env, push)
    view.reset(seed=0)
    _, reward, *_, info = view.step(np.full(1, 2.0, np.float32))
    assert reward == info["adversary_reward"] > 0
    assert info["executed_action"] == pytest.approx(1.5)


def test_adversary_of_an_episode_acts_once():
    env = make(setting="parameter", horizon=5)
    view = AdversaryView(env, push)
    view.reset(seed=0)
    _, cost, terminated, _, _ = view.step(np.array([0.5], np.float32))
    env.reset(seed=0, options={"adversary": np.array([0.5], np.float32)})
    assert cost == pytest.approx(-sum(env.step(both(env))[1] for _ in range(5)))
    assert terminated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "pendulm"}, "'pendulum'"),
        ({"setting": "adversary"}, "'adversarial'"),
        ({"reward": "spars"}, "'sparse'"),
        ({"scope": "epsiode"}, "'episode'"),
        ({"setting": "action", "mixture": "noise"}, "'noisy'"),
        ({"setting": "adversarial", "mixture": "noisy"}, "setting='action'"),
        ({"setting": "adversarial", "strength": 1.0}, r"\[0, 1\).*0.99"),
        ({"setting": "adversarial", "strength": -0.1}, r"\[0, 1\).*is 0"),
        ({"setting": "adversarial", "strength": float("nan")}, r"\[0, 1\)"),
        ({"setting": "none", "strength": 0.2}, "no adversary"),
        ({"horizon": 0}, "at least 1"),
        ({"horizon": 2.5}, "at least 1"),
        ({"action_cost": -1.0}, "nearest valid value is 0"),
    ],
    ids=str,
)
def test_mistakes_are_named_with_their_remedy(options, message):
    with pytest.raises(UsageError, match=message) as caught:
        make(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "strength", "scope"),
    [("none", 0, "step"), ("adversarial", 0.2, "step"), ("action", 0.2, "step"), ("parameter", 0.8, "episode")],
)
def test_defaults_of_a_setting(setting, strength, scope):
    game = make(setting=setting).game
    assert float(game.strength) == pytest.approx(strength)
    assert (game.scope, game.horizon, game.rewards, game.action_cost) == (scope, 200, "dense", 0.001)
    assert make(setting=setting, reward="sparse").game.action_cost == 0.05


def test_importing_the_room_is_light():
    code = "import sys, rhucrl.envs; sys.exit(any(name in sys.modules for name in ('jax', 'gymnasium')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
