"""The robots: rewards and ends known exactly, an adversary that does what it says, and nothing else changed."""

import json
import time

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from probes import simulator
from rhucrl.envs import STRENGTH, make
from rhucrl.envs.physics import mujoco
from rhucrl.envs.robots import ROBOTS, turned
from rhucrl.envs.zero_sum_env import AdversaryView, AgentView
from rhucrl.errors import UsageError
from rhucrl.networks.layers import Perceptron
from rhucrl.networks.policies import Gaussian, NetworkOrRule, Normaliser, bang_bang, held_by
from rhucrl.storage.trees import load_tree, save_tree

FALLING = ("hopper", "inverted-pendulum", "walker")
SETTINGS = [
    {"setting": "none"},
    {"setting": "adversarial"},
    {"setting": "adversarial", "scope": "episode"},
    {"setting": "action"},
    {"setting": "action", "mixture": "probabilistic"},
    {"setting": "parameter"},
    {"setting": "parameter", "scope": "step"},
]
PHYSICAL = "ignore:.*(symmetric and normalized space|infinity).*:UserWarning"
ONE_POINT = "ignore:.*maximum and minimum values are equal:UserWarning"


def played(env, steps, hold=5, seed=0):
    """Random steps, one row each of (obs, executed, adversary, next obs, reward, terminated)."""
    generator, rows = np.random.default_rng(seed), []
    adversary = env.boxes["adversary"]
    obs, _ = env.reset(seed=seed)
    for t in range(steps):
        if t % hold == 0:
            agent = generator.uniform(env.boxes["agent"].low, env.boxes["agent"].high)
            against = generator.uniform(adversary.low, adversary.high)
        following, reward, terminated, truncated, info = env.step({"agent": agent, "adversary": against})
        rows.append((obs, info["executed_action"], against, following, reward, terminated))
        obs = following
        if terminated or truncated:
            held = generator.uniform(adversary.low, adversary.high).astype(np.float32)
            obs, _ = env.reset(options={"adversary": held} if env.game.scope == "episode" else None)
    return [np.stack(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("setting", ("none", "adversarial", "parameter", "action"))
@pytest.mark.parametrize("name", ROBOTS)
def test_reward_and_end_are_known_exactly(name, setting):
    env = make(name, setting, horizon=100)
    *transitions, reward, terminated = played(env, 1000)
    with jax.enable_x64(True):
        known = np.asarray(env.game.reward(*map(jnp.asarray, transitions)))
        ends = np.asarray(env.game.terminated(jnp.asarray(transitions[3])))
        compiled = np.asarray(jax.jit(lambda *x: env.game.reward(*x))(*map(jnp.asarray, transitions)))
    bits = {"swimmer": 1e-13, "reacher": 5e-16}.get(name, 0.0)  # of what is turned there and back; of BLAS's norm
    np.testing.assert_allclose(known, reward, rtol=0, atol=bits)
    np.testing.assert_allclose(compiled, reward, rtol=0, atol=max(bits, 5e-16))
    np.testing.assert_array_equal(ends, terminated)
    assert terminated.any() == (name in FALLING)
    assert (np.abs(transitions[3]) < ROBOTS[name].edge).all()
    rough = env.game.reward(*(jnp.asarray(x, jnp.float32) for x in transitions))
    np.testing.assert_allclose(rough, reward, rtol=0, atol=1e-5 if name == "swimmer" else 1e-6)


@pytest.mark.parametrize("name", ("hopper", "walker"))
def test_health_is_gymnasiums_also_where_random_steps_do_not_get(name):
    env, generator = make(name), np.random.default_rng(0)
    env.reset(seed=0)
    inner, outcomes = simulator(env), []
    for _ in range(400):
        position, speed = inner.init_qpos.copy(), generator.normal(size=inner.model.nv) * 40
        position[1], position[2] = generator.uniform(0.6, 2.1), generator.normal() * 0.3
        inner.set_state(position, speed)
        obs = np.concatenate([speed[:1], position[1:], speed])
        outcomes.append(inner.is_healthy)
        assert ROBOTS[name].health(obs) == inner.is_healthy
    assert 20 < sum(outcomes) < 380


@pytest.mark.parametrize("name", ("half-cheetah", "walker"))
def test_the_native_velocity_does_not_determine_the_reward(name):
    """Why the observation has a mean velocity of its own."""
    env = make(name)
    *transitions, reward, _ = played(env, 300)
    native = transitions[3].copy()
    native[:, 0] = native[:, -simulator(env).model.nv]
    wrong = env.game.known_reward(*transitions[:3], native)
    assert np.abs(wrong - reward).max() > 0.05


NEUTRAL = [{"setting": "none"}, {"setting": "adversarial"}, {"setting": "parameter"}]
NEUTRAL += [{"setting": "action", "strength": 0.0}, {"setting": "parameter", "scope": "step"}]


@pytest.mark.parametrize("options", NEUTRAL, ids=str)
@pytest.mark.parametrize("name", ROBOTS)
def test_a_neutral_adversary_changes_nothing_bit_for_bit(name, options):
    env, base = make(name, **options), gym.make(ROBOTS[name].gymnasium, disable_env_checker=True).unwrapped
    generator, space = np.random.default_rng(1), env.boxes["agent"]
    for seed in (3, None):  # an episode after another goes on with the same generator
        env.reset(seed=seed)
        base.reset(seed=seed)
        for _ in range(40):
            action = generator.uniform(space.low, space.high).astype(np.float32)
            obs, reward, terminated, *_ = env.step({"agent": action, "adversary": env.neutral})
            native, native_reward, native_terminated, *_ = base.step(action)
            assert (reward, terminated) == (native_reward, native_terminated)
            np.testing.assert_array_equal(simulator(env).data.qpos, base.data.qpos)
            np.testing.assert_array_equal(simulator(env).data.qvel, base.data.qvel)
            seen = obs if ROBOTS[name].hidden == 0 else np.concatenate([base.data.qpos, base.data.qvel])
            np.testing.assert_array_equal(seen, native if ROBOTS[name].hidden == 0 else base.state_vector())
            if terminated:
                break


def test_actions_are_clipped_before_they_cost():
    env = make("half-cheetah")
    env.reset(seed=0)
    following, reward, *_, info = env.step({"agent": np.full(6, 7.0), "adversary": env.neutral})
    np.testing.assert_array_equal(info["executed_action"], np.ones(6))
    assert reward == pytest.approx(following[0] - 0.1 * 6)


def test_in_the_action_setting_the_mixture_costs():
    env = make("reacher", "action", strength=0.5)
    env.reset(seed=0)
    still, push = np.zeros(2), np.ones(2)
    following, reward, *_, info = env.step({"agent": still, "adversary": push})
    np.testing.assert_array_equal(info["executed_action"], np.full(2, 0.5))
    assert reward == pytest.approx(-np.linalg.norm(following[8:10]) - 0.5)


def test_probabilistic_mixing_is_reproducible_and_has_its_share():
    env = make("swimmer", "action", strength=0.3, mixture="probabilistic")

    def executed(seed):
        env.reset(seed=seed)
        players = {"agent": np.ones(2), "adversary": -np.ones(2)}
        return [env.step(players)[-1]["executed_action"][0] for _ in range(600)]

    first = executed(0)
    assert set(first) == {-1.0, 1.0}
    assert np.mean(np.array(first) < 0) == pytest.approx(0.3, abs=0.06)
    assert executed(0) == first != executed(1)


@pytest.mark.parametrize("options", [SETTINGS[1], SETTINGS[4], SETTINGS[5]], ids=str)
@pytest.mark.parametrize("name", ROBOTS)
def test_resumes_exactly(name, options):
    env, other = make(name, **options, horizon=12), make(name, **options, horizon=12)

    def play(env, rows):
        env.action_space.seed(5)
        for _ in range(10):
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            rows.append((*obs, reward))
            if terminated or truncated:
                rows.append((*env.reset()[0], 0.0))
        return rows

    held = {"adversary": env.boxes["adversary"].low} if env.game.scope == "episode" else {}
    env.reset(seed=3, options=held)
    for _ in range(3):
        obs, *_ = env.step({"agent": env.boxes["agent"].high / 9, "adversary": env.neutral})
    saved = json.loads(json.dumps(env.get_state(), default=np.ndarray.tolist))
    expected = play(env, [])
    other.reset(seed=99)
    np.testing.assert_array_equal(other.set_state(saved), obs)
    assert json.loads(json.dumps(other.get_state(), default=np.ndarray.tolist)) == saved
    assert play(other, []) == expected


def test_unseeded_environments_differ():
    assert not np.array_equal(make("swimmer").reset()[0], make("swimmer").reset()[0])


@pytest.mark.filterwarnings(PHYSICAL, ONE_POINT)
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ROBOTS)
def test_gymnasium_accepts_robots_and_their_views(name, options):
    env = make(name, **options, horizon=20)
    for face in (env, AgentView(env), AdversaryView(env, lambda obs: np.zeros(env.boxes["agent"].shape))):
        check_env(face, skip_render_check=True)


TABLE = {
    "half-cheetah": (18, 6, 6, 1000, 0.05),
    "hopper": (12, 3, 2, 1000, 0.008),
    "inverted-pendulum": (4, 1, 2, 1000, 0.04),
    "reacher": (10, 2, 2, 50, 0.02),
    "swimmer": (10, 2, 2, 1000, 0.04),
    "walker": (18, 6, 2, 1000, 0.008),
}


@pytest.mark.parametrize("name", ROBOTS)
def test_the_table(name):
    env = make(name, "adversarial")
    sizes = (env.game.observation.size, env.game.agent.size, env.game.adversary.size, env.game.horizon)
    assert (*sizes, pytest.approx(simulator(env).dt)) == TABLE[name]
    assert env.game.scale.shape == (sizes[0],)
    np.testing.assert_array_equal(env.boxes["adversary"].high, np.full(sizes[2], 10))
    options = env.game.options()
    assert make(options.pop("env"), **options).game.options() == env.game.options()


def test_starts_are_observations_at_reset():
    env = make("reacher")
    starts = np.asarray(env.game.starts(jax.random.key(0), 200))
    assert starts.shape == (200, 10)
    assert 32 < len(np.unique(starts, axis=0)) <= 64
    first = np.float32(env.reset(seed=0)[0])
    assert (starts == first).all(-1).any()
    pendulum = make("pendulum").game
    np.testing.assert_array_equal(
        pendulum.starts(jax.random.key(0), 3), [pendulum.observe(pendulum.reset(jax.random.key(0)))] * 3
    )


def test_a_model_is_given_what_the_next_observation_depends_on():
    def size(**options):
        game = make("hopper", **options).game
        return game.model_input(jnp.zeros((5, 12)), jnp.zeros(3), jnp.zeros(game.adversary.size)).shape

    assert size(setting="none") == size(setting="action") == (5, 15)
    assert size(setting="adversarial") == (5, 17)
    assert size(setting="parameter") == (5, 16)


def test_games_of_one_kind_share_a_program_and_can_be_saved(tmp_path):
    traced = []

    @jax.jit
    def value(game, obs):
        traced.append(game.name)
        return game.reward(obs, jnp.zeros(3), game.neutral, game.project(obs)), game.terminated(obs)

    for strength in (3.0, 5.0):
        game = make("hopper", "adversarial", strength).game
        value(game, game.starts(jax.random.key(0), 4))
    value(game.nominal(), game.sample(jax.random.key(0), 4))
    assert traced == ["hopper"]
    save_tree(tmp_path / "game", game)
    loaded, _ = load_tree(tmp_path / "game", make("hopper", "adversarial").game)
    assert loaded.options() == game.options()


def test_one_system_under_several_strengths():
    env = make("hopper", "adversarial")
    weak = env.at(2.0)
    weak.reset(seed=0)
    weak.step({"agent": np.zeros(3), "adversary": np.full(2, 9.0)})
    np.testing.assert_array_equal(simulator(env).data.body("torso").xfrc_applied[[0, 2]], [2, 2])
    assert (env.boxes["adversary"].high[0], weak.boxes["adversary"].high[0]) == (10, 2)
    mixed = make("pendulum", "action", 0.2).at(0.5)
    mixed.reset(seed=0)
    assert mixed.step({"agent": np.ones(1), "adversary": -np.ones(1)})[-1]["executed_action"] == 0


@pytest.mark.parametrize("setting", STRENGTH["robot"])
def test_nominal_games_have_an_adversary_of_no_strength(setting):
    game = make("hopper", setting).game.nominal()
    box = game.agent if setting == "action" else game.adversary
    executed = game.execute(jnp.ones(3), -jnp.ones(3)) if setting == "action" else None
    if executed is not None:
        np.testing.assert_array_equal(executed.action[0], jnp.ones(3))
    else:
        np.testing.assert_array_equal(box.low, box.high)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "cheetah"}, "'half-cheetah'"),
        ({"setting": "adversarial", "strength": -1.0}, "nearest valid value is 0"),
        ({"setting": "adversarial", "strength": float("inf")}, "not finite"),
        ({"setting": "action", "strength": 1.0}, r"\[0, 1\).*0.99"),
        ({"setting": "parameter", "strength": 1.5}, r"\[0, 1\].*is 1"),
        ({"reward": "sparse"}, "one reward"),
        ({"action_cost": 0.1}, "one reward"),
    ],
    ids=str,
)
def test_mistakes_are_named_with_their_remedy(options, message):
    with pytest.raises(UsageError, match=message):
        make(**({"name": "hopper"} | options))


def test_a_thousand_steps_with_two_policies_are_cheap():
    env = make("half-cheetah", "adversarial")
    agent, adversary = np.full(6, 0.1), np.ones(6)
    costs = []
    for _ in range(3):  # other processes may disturb one of them
        env.reset(seed=0)
        start = time.process_time()
        for _ in range(1000):
            env.step({"agent": agent, "adversary": adversary})
        costs.append(time.process_time() - start)
    assert min(costs) < 0.3


def test_the_rail_is_the_end_inside_a_model_only():
    game = make("inverted-pendulum").game
    states = jnp.array([[0.5, 0.0, 0, 0], [-0.99, 0.1, 0, 0], [0.0, 0.3, 0, 0]])
    np.testing.assert_array_equal(game.terminated(states), [False, False, True])
    np.testing.assert_array_equal(game.over(states), [False, True, True])


def test_a_swimmer_that_heads_elsewhere_is_the_same_swimmer():
    """All that it sees but its heading is the same, under forces that turn with it; its progress is not."""

    def swim(angle, turn):
        env, generator, rows = make("swimmer", "adversarial"), np.random.default_rng(0), []
        env.reset(seed=0)
        inner = simulator(env)
        inner.set_state(np.array([0, 0, angle, 0.5, -0.7]), np.array([*turned(np.array([0.3, 0.1]), angle), 1, -2, 3]))
        obs = env.system.simulator.env._see(np.zeros(2))
        for _ in range(50):
            action, force = generator.uniform(-1, 1, 2), generator.uniform(-5, 5, 2)
            force = turned(force, angle) if turn else force
            following, reward, *_ = env.step({"agent": action, "adversary": force})
            rows.append((obs, action, force, following, reward))
            obs = following
        return env.game, [np.stack(column) for column in zip(*rows, strict=True)]

    game, (*here, reward) = swim(0.0, False)
    _, (*there, elsewhere) = swim(2.0, True)
    np.testing.assert_allclose(there[3] - here[3], np.tile([0, 0, 2, *[0] * 7], (50, 1)), atol=1e-6)
    with jax.enable_x64(True):
        sees = [game.model_input(*map(jnp.asarray, rows[:3])) for rows in (here, there)]
    np.testing.assert_allclose(*sees, atol=1e-6)
    assert np.abs(swim(2.0, False)[1][3] - there[3])[:, 3:].max() > 0.1
    assert np.abs(elsewhere - reward).max() > 0.1


def test_a_swimmer_sees_its_centre_of_mass_whatever_a_part_of_it_weighs():
    env = make("swimmer", "parameter")
    env.reset(seed=0, options={"adversary": np.array([1.5], np.float32)})
    for action in ([1, -1], [1, 1], [-1, 0.5]):
        obs, *_ = env.step({"agent": np.array(action, np.float32), "adversary": env.neutral})
        model, data = (getattr(simulator(make("swimmer")), name) for name in ("model", "data"))
        data.qpos, data.qvel = simulator(env).data.qpos, simulator(env).data.qvel
        begun, moved = [], data.qpos.copy()
        for qpos in (moved, moved + 1e-6 * data.qvel):
            data.qpos = qpos
            mujoco.mj_forward(model, data)
            begun.append(data.subtree_com[0, :2].copy())
        np.testing.assert_allclose(obs[5:7], turned((begun[1] - begun[0]) / 1e-6, -moved[2]), atol=1e-5)


def test_a_full_turn_changes_nothing_that_a_model_or_a_policy_sees():
    game = make("half-cheetah").game
    obs = game.starts(jax.random.key(0), 4)
    around = obs.at[:, game.winding[0]].add(2 * jnp.pi)
    other = obs.at[:, game.winding[0]].add(1.0)
    seen = [game.model_input(x, jnp.zeros(game.agent.size), game.neutral) for x in (obs, around, other)]
    np.testing.assert_allclose(seen[1], seen[0], atol=1e-5)
    assert (jnp.abs(seen[2] - seen[0]).max(-1) > 0.1).all()
    sizes = game.observation.size + 1, 16, 2 * game.agent.size
    normaliser = Normaliser(jnp.full(sizes[0], 0.1), jnp.full(sizes[0], 0.7), game.winding)
    policy = Gaussian(Perceptron(sizes, jax.random.key(1)), normaliser, game.agent)
    np.testing.assert_allclose(policy(around), policy(obs), atol=1e-5)


def test_a_policy_on_the_host_is_the_same_policy():
    game = make("half-cheetah").game
    obs, noise = game.starts(jax.random.key(0), 1)[0] + 0.3, jax.random.normal(jax.random.key(2), (6,))
    normaliser = Normaliser(jnp.full(19, 0.1), jnp.full(19, 0.7), game.winding)
    net = jax.tree.map(lambda x: 3 * x, Perceptron((19, 16, 16, 12), jax.random.key(1)))  # not only small actions
    policy = Gaussian(net, normaliser, game.agent)
    act = policy.on_host()
    assert 0.1 < jnp.abs(policy(obs)).max() < 1
    np.testing.assert_allclose(act(np.asarray(obs)), policy(obs), atol=1e-5)
    np.testing.assert_allclose(act(np.asarray(obs), np.asarray(noise)), policy.sample(obs, noise)[0], atol=1e-5)


@pytest.mark.parametrize("rules", [True, False])
def test_an_adversary_on_the_host_is_the_same_adversary(rules):
    game = make("half-cheetah", "adversarial").game
    normaliser = Normaliser(jnp.full(19, 0.1), jnp.full(19, 0.7), game.winding)
    network = Gaussian(Perceptron((19, 16, 16, 12), jax.random.key(1)), normaliser, game.adversary)
    rule = jax.random.normal(jax.random.key(3), (6, 20))
    adversary = NetworkOrRule(network, rule, jnp.bool_(rules))
    obs = game.starts(jax.random.key(0), 8) + jax.random.normal(jax.random.key(2), (8, 18))
    actions, play = adversary(obs, jnp.zeros((8, 6))), adversary.on_host()
    np.testing.assert_allclose([play(np.asarray(row)) for row in obs], actions, atol=1e-5)
    assert bool((jnp.abs(actions) == 10).all()) == rules and len(jnp.unique(actions, axis=0)) > 5
    held = held_by(game.adversary, actions, 19)
    if rules:  # what is held is held everywhere
        np.testing.assert_array_equal(bang_bang(held[3], normaliser, game.adversary, obs), [actions[3]] * 8)
