"""Environments of one's own as games: mixtures for all, forces and masses for MuJoCo's, disturbances in a few lines."""

import json
import sys

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rhucrl
from rhucrl.envs import make
from rhucrl.envs.wrap import wrap
from rhucrl.errors import UsageError

PHYSICAL = "ignore:.*(symmetric and normalized space|maximum and minimum values are equal|infinity).*:UserWarning"


def pendulum():
    return gym.make("Pendulum-v1", max_episode_steps=30)


def hopper(**options):
    return gym.make("Hopper-v5", max_episode_steps=40, **options)


def pendulum_reward(obs, executed, adversary, next_obs):
    theta, speed = jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]
    return -(theta**2 + 0.1 * speed**2 + 0.001 * executed[..., 0] ** 2)


class Wind:
    """A disturbance of one's own: it blows the pendulum's speed."""

    box = (-np.ones(1), np.ones(1))
    neutral = np.zeros(1)

    def apply(self, env, value):
        if env.unwrapped.state is not None:
            env.unwrapped.state = env.unwrapped.state + np.array([0.0, value[0]])


def steps(env, n, seed=0, agent=0.5, adversary=None):
    rows = [env.reset(seed=seed)[0]]
    for _ in range(n):
        against = env.neutral if adversary is None else adversary
        rows.append(env.step({"agent": np.full(env.boxes["agent"].shape, agent, np.float32), "adversary": against})[0])
    return np.stack(rows)


@pytest.mark.filterwarnings(PHYSICAL)
@pytest.mark.parametrize(
    "make_game",
    [
        lambda: wrap(pendulum(), reward=pendulum_reward, terminated=None),
        lambda: wrap(pendulum(), "action", 0.5, mixture="probabilistic"),
        lambda: wrap(pendulum(), disturbance=Wind(), scope="episode"),
        lambda: wrap(hopper(), "adversarial"),
        lambda: wrap(hopper(), "parameter", disturbance=rhucrl.Masses(("thigh", "leg"), 0.8, 1.2)),
        lambda: wrap(hopper(), "none"),
    ],
)
def test_gymnasium_accepts_wrapped_environments(make_game):
    env = make_game()
    check_env(env, skip_render_check=True)
    check_env(rhucrl.AgentView(env), skip_render_check=True)


def test_a_mixture_of_any_environment():
    env = wrap(pendulum(), "action", 0.25, reward=pendulum_reward, terminated=None)
    obs, _ = env.reset(seed=0)
    players = {"agent": np.full(1, 2.0, np.float32), "adversary": np.full(1, -2.0, np.float32)}
    following, reward, _, _, info = env.step(players)
    assert info["executed_action"] == pytest.approx(1.0)
    known = env.game.reward(*map(jnp.asarray, (obs, info["executed_action"], players["adversary"], following)))
    assert reward == pytest.approx(float(known), abs=1e-5)
    assert (env.game.setting, env.game.scope, env.game.mixture, env.game.horizon) == ("action", "step", "noisy", 30)
    assert not env.game.terminated(jnp.zeros((4, 3))).any()


def test_without_strength_a_wrapped_environment_is_itself():
    env, base = wrap(pendulum(), "action", 0.0), pendulum()
    base.reset(seed=4)
    expected = [base.step(np.full(1, 0.5, np.float32))[0] for _ in range(20)]
    np.testing.assert_array_equal(steps(env, 20, seed=4)[1:], expected)


def test_forces_on_any_body_of_mujoco():
    env = wrap(hopper(), disturbance=rhucrl.Forces(("torso", "foot"), "x"))
    assert float(env.game.strength) == 10
    np.testing.assert_array_equal(env.boxes["adversary"].high, [10, 10])
    env.reset(seed=0)
    env.step({"agent": np.zeros(3), "adversary": np.array([3.0, -4.0])})
    data = env.system.simulator.env.unwrapped.data
    assert data.body("torso").xfrc_applied[0] == 3
    assert data.body("foot").xfrc_applied[0] == -4


def test_forces_and_masses_go_to_the_first_body_unless_told():
    forces, masses = wrap(hopper(), "adversarial"), wrap(hopper(), "parameter")
    assert forces.system.disturbance.bodies == masses.system.disturbance.bodies == ("torso",)
    assert forces.game.adversary.size == 3
    np.testing.assert_allclose(masses.boxes["adversary"].low, 0.5)
    assert masses.game.scope == "episode"


def test_a_disturbance_of_ones_own():
    env = wrap(pendulum(), disturbance=Wind(), strength=0.5)
    assert env.game.setting == "adversarial"
    np.testing.assert_array_equal(env.boxes["adversary"].high, [0.5])
    still, blown = steps(env, 1), steps(env, 1, adversary=np.full(1, 9.0))
    assert blown[1, 2] - still[1, 2] == pytest.approx(0.5, abs=1e-5)


def test_what_is_unknown_is_predicted_after_the_observation():
    game = wrap(hopper(), "none").game
    assert game.learned == ("reward", "terminated")
    assert game.observation.size == 11 and game.predicted_size == 13
    fell, went = game.report(np.ones(11), 2.5, True), game.report(np.ones(11), -1.0, False)
    assert game.reward(went, np.zeros(3), np.zeros(1), fell) == 2.5
    assert game.terminated(fell) and not game.terminated(went)
    np.testing.assert_array_equal(game.starts(jax.random.key(0), 3)[:, 11:], 0)
    np.testing.assert_array_equal(game.forget(fell), game.report(np.ones(11), 0.0, False))
    assert game.model_input(fell, np.zeros(3), np.zeros(1)).shape == (14,)
    assert wrap(pendulum(), reward=pendulum_reward, terminated=None).game.learned == ()
    assert make("hopper").game.learned == make("pendulum").game.learned == ()


def test_sizes_are_learned_from_random_steps():
    game = wrap(hopper(), "none").game
    assert game.starts(jax.random.key(0), 5).shape == (5, 13)
    assert (game.scale > 0).all() and game.scale[0] < 0.5 < game.scale[-1]
    low, high = game.reward_range
    assert low < -1 and high > 2
    given = wrap(hopper(), "none", reward_range=(-3, 4)).game.reward_range
    assert tuple(map(float, given)) == (-3, 4)


def test_the_environments_own_time_limit_truncates():
    env = wrap(pendulum(), horizon=10)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(10)]
    assert ends == [False] * 9 + [True]


def test_mujoco_environments_resume_exactly_with_their_time_limit():
    env, other = wrap(hopper(), "adversarial"), wrap(hopper(), "adversarial")
    steps(env, 4)
    saved = json.loads(json.dumps(env.get_state(), default=np.ndarray.tolist))
    other.reset(seed=9)
    other.set_state(saved)
    players = {"agent": np.full(3, 0.2), "adversary": np.ones(3)}
    for _ in range(5):
        np.testing.assert_array_equal(env.step(players)[0], other.step(players)[0])
    assert other.system.simulator.get_state()["elapsed"] == 9


def test_an_environment_that_cannot_be_saved_says_so():
    env = wrap(pendulum())
    env.reset(seed=0)
    with pytest.raises(UsageError, match="get_state"):
        env.get_state()


class Restless(gym.Env):
    """Saves its own state."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=1)
        return self.place.copy(), {}

    def step(self, action):
        self.place = self.place + action + self.np_random.normal(size=1)
        return self.place.copy(), 0.0, False, False, {}

    def get_state(self):
        return self.place.tolist()

    def set_state(self, state):
        self.place = np.array(state)


def test_an_environment_may_save_itself():
    env, other = wrap(Restless(), horizon=50), wrap(Restless(), horizon=50)
    steps(env, 4)
    saved = json.loads(json.dumps(env.get_state(), default=np.ndarray.tolist))
    other.reset()
    other.set_state(saved)
    players = {"agent": np.ones(1), "adversary": np.ones(1)}
    np.testing.assert_array_equal(*[[e.step(players)[0] for _ in range(5)] for e in (env, other)])


class Tilt:
    """A disturbance that stays until it is taken back, and that resets would feel."""

    box, neutral = (-np.ones(1), np.ones(1)), np.zeros(1)

    def apply(self, env, value):
        env.unwrapped.tilt = value[0]


class Tilted(Restless):
    tilt = 0.0

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs + self.tilt, info


def test_every_episode_starts_undisturbed():
    env = wrap(Tilted(), disturbance=Tilt(), horizon=50)
    first = env.reset(seed=1)[0]
    env.step({"agent": np.zeros(1), "adversary": np.ones(1)})
    assert env.system.simulator.env.tilt == 1
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: wrap(gym.make("CartPole-v1")), "Discrete.*continuous"),
        (lambda: wrap(pendulum(), "adversarial"), "setting='action'"),
        (lambda: wrap(pendulum(), disturbance=rhucrl.Forces("torso")), "MuJoCo"),
        (lambda: wrap(hopper(), disturbance=rhucrl.Forces("tors")), "'torso'"),
        (lambda: rhucrl.Forces("torso", "xq"), "axes"),
        (lambda: rhucrl.Masses("torso", 1.2, 1.5), "low <= 1"),
        (lambda: wrap(pendulum(), "action", disturbance=Wind()), "no disturbance"),
        (lambda: wrap(pendulum(), "actoin"), "'action'"),
        (lambda: wrap(pendulum(), "action", 1.5), r"\[0, 1\)"),
        (lambda: wrap(hopper(), "parameter", 1.5), r"\[0, 1\]"),
        (lambda: wrap(pendulum(), reward=3.0), "neither a function"),
        (lambda: wrap(pendulum(), reward=None), "neither a function"),
        (lambda: wrap(pendulum().unwrapped), "horizon="),
        (lambda: wrap(pendulum(), horizon=31), r"\[1, 30\]"),
    ],
)
def test_mistakes_are_named_with_their_remedy(wrong, message):
    with pytest.raises(UsageError, match=message):
        wrong()


def test_environments_are_made_by_module_and_function(tmp_path, monkeypatch):
    (tmp_path / "my_robots.py").write_text(
        "import gymnasium, rhucrl\n"
        "def plain(): return gymnasium.make('Pendulum-v1')\n"
        "def game(): return rhucrl.wrap(plain(), 'action', 0.1)\n"
        "def number(): return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    env = make("my_robots:plain", "action", 0.4, horizon=50)
    assert (env.game.options()["env"], env.game.horizon) == ("my_robots:plain", 50)
    assert float(make("my_robots:game").game.strength) == pytest.approx(0.1)
    for name, message in (("my_robots:number", "gave a int"), ("my_robots:no", "no function"), ("nil:x", "imported")):
        with pytest.raises(UsageError, match=message):
            make(name)
    monkeypatch.delitem(sys.modules, "my_robots")


def test_stable_baselines_trains_on_the_agents_view():
    baselines = pytest.importorskip("stable_baselines3")
    view = rhucrl.AgentView(make("inverted-pendulum", "adversarial", 3.0, horizon=50))
    model = baselines.SAC("MlpPolicy", view, learning_starts=20, policy_kwargs={"net_arch": [16]}, device="cpu")
    model.learn(40)
    assert view.action_space.contains(model.predict(view.reset(seed=0)[0])[0])
