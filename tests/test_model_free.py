"""Soft actor-critic on games whose answers are known."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rhucrl
from rhucrl.model_free.sac import Batch, SACOptions, SACPlayer, begin, memory, unit_policy, update
from rhucrl.networks.layers import spread

OPTIONS = SACOptions(width=32, batch=64, learning_rate=3e-3, every=8)


def solved(players, reward, updates=1500, goes_on=0.0, discount=0.99):
    """Each player's mode at s = -.5 and .5, and the learner, after learning from random actions."""
    generator, options = np.random.default_rng(0), OPTIONS._replace(discount=discount)
    shape = (updates // 50, 50, options.batch)
    learner = begin(players, np.ones(1), options, jax.random.key(0))
    for i in range(shape[0]):
        obs = generator.uniform(-1, 1, (*shape[1:], 1)).astype(np.float32)
        action = generator.uniform(-1, 1, (*shape[1:], len(players))).astype(np.float32)
        alive = np.full(shape[1:], goes_on, np.float32)
        batch = Batch(obs, action, reward(obs[..., 0], action), obs, alive)
        learner, _ = update(learner, batch, players, options, jax.random.key(i))
    points = jnp.array([[-0.5], [0.5]])
    modes = [unit_policy(net, learner.normaliser)(points)[:, 0] for net in learner.networks.actors]
    return [np.asarray(mode) for mode in modes], learner


def test_one_player_finds_the_best_action():
    (mode,), _ = solved((SACPlayer(1),), lambda s, a: -10 * np.square(a[..., 0] - s))
    np.testing.assert_allclose(mode, [-0.5, 0.5], atol=0.1)


def test_two_players_find_the_saddle():
    """r = -(a - s)^2 + (abar + s / 2)^2 + a abar: the saddle is where both gradients vanish."""

    def reward(s, a):
        mine, theirs = a[..., 0], a[..., 1]
        return 10 * (-np.square(mine - s) + np.square(theirs + s / 2) + mine * theirs)

    saddle = np.linalg.solve(np.array([[-2.0, 1.0], [1.0, 2.0]]), np.array([-2.0, -1.0]))  # of s = 1
    (mine, theirs), _ = solved((SACPlayer(1, 1), SACPlayer(1, -1)), reward)
    np.testing.assert_allclose(mine, saddle[0] * np.array([-0.5, 0.5]), atol=0.12)
    np.testing.assert_allclose(theirs, saddle[1] * np.array([-0.5, 0.5]), atol=0.12)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_value_of_going_on(sign):
    """r = -sign |a|^2 for ever: the best is 0, and without entropy nothing else adds up to it."""
    _, learner = solved((SACPlayer(1, sign),), lambda s, a: -sign * np.square(a[..., 0]), goes_on=1.0, discount=0.5)
    temperature = float(jnp.exp(learner.networks.log_temperatures[0]))
    value = learner.networks.critics(spread(jnp.array([[0.3, 0.0]]), learner.networks.critics))[0, 0, 0]
    assert abs(float(value)) < 0.15 + 2 * temperature


PLAYERS = (SACPlayer(1, 1), SACPlayer(1, -1))


def one_step(learner, **options):
    """The learner after one more gradient step on a batch of random transitions."""
    numbers = np.random.default_rng(0).normal(size=(1, 8, 6)).astype(np.float32)
    batch = Batch(numbers[..., :1], numbers[..., 1:3], numbers[..., 3], numbers[..., 4:5], np.ones((1, 8), np.float32))
    return update(learner, batch, PLAYERS, OPTIONS._replace(width=8, batch=8, **options), jax.random.key(0))[0]


def test_target_critics_move_towards_the_critics_at_the_polyak_rate():
    rate, learner = 0.25, begin(PLAYERS, np.ones(1), OPTIONS._replace(width=8), jax.random.key(0))
    learner = learner._replace(targets=jax.tree.map(lambda w: w + 0.5, learner.targets))
    after = one_step(learner, target_rate=rate)
    for before, critic, old, new in zip(
        *map(jax.tree.leaves, (learner.networks.critics, after.networks.critics, learner.targets, after.targets)),
        strict=True,
    ):
        assert (before != critic).any()
        np.testing.assert_allclose(new, old + rate * (critic - old), atol=1e-6)


def test_patience_holds_the_second_player_back_and_nobody_else():
    """Of two updates the second moves all networks, the first all but the adversary's."""
    learners = [begin(PLAYERS, np.ones(1), OPTIONS._replace(width=8), jax.random.key(0))]
    for _ in range(2):
        learners.append(one_step(learners[-1], patience=2))

    def moved(before, after):
        return {bool((a != b).any()) for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)}

    for before, after, adversary in zip(learners, learners[1:], ({False}, {True}), strict=False):
        for i, expected in enumerate(({True}, adversary)):
            assert moved(before.networks.actors[i], after.networks.actors[i]) == expected
        assert moved(before.networks.critics, after.networks.critics) == {True}


def test_a_memory_forgets_the_oldest():
    store = memory(4, 1, 1)
    for i in range(6):
        store = store.add([i], [0.0], float(i), [i + 1], True)
    drawn = store.draw(np.random.default_rng(0), 8, 16)
    assert set(np.unique(drawn.reward)) == {2, 3, 4, 5}
    np.testing.assert_array_equal(drawn.following[..., 0], drawn.reward + 1)


class Corridor(gym.Env):
    """Walk right: the step's length is the reward; the episode ends at the wall, or is cut after 20 steps."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float64)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.time = 0.0, 0
        return np.array([self.x]), {}

    def step(self, action):
        self.x, self.time = self.x + 0.1 * float(action[0]), self.time + 1
        return np.array([self.x]), float(action[0]), self.x >= 3.5, self.time >= 20, {}


def test_an_agent_learns_to_walk():
    env = rhucrl.wrap(Corridor(), "none", horizon=20, reward="learned", terminated="learned")
    gains = {}
    for seed in (3, 3, 4):
        agent = rhucrl.SAC(env, seed=seed, width=32, batch=64, learning_rate=3e-3).learn(70)
        gains.setdefault(seed, []).append(rhucrl.worst_case(agent, env, only=["constant"]).nominal)
    assert gains[3][0] == gains[3][1]
    assert min(gains[3][0], gains[4][0]) > 33  # of 35
