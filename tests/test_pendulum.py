"""The pendulum's equations, against hand computation and against Gymnasium's own pendulum."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rhucrl.attacks.rollouts import (
    Constant,
    episode_return,
    mean_return,
    rollout,
)
from rhucrl.envs.game import draw, play
from rhucrl.envs.pendulum import DT, MAX_SPEED, Pendulum, upright_and_slow

KEY = jax.random.key(0)
KINDS = ("none", "adversarial", "noisy", "probabilistic", "parameter")


def zero(obs):
    return jnp.zeros((*obs.shape[:-1], 1))


def energy(obs):
    """Pumps the energy of the upright rest into the pendulum, and balances near the top."""
    theta, omega = jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]
    lack = 15 - (omega**2 / 2 + 15 * obs[..., 0])
    swing = 2 * jnp.sign(lack) * jnp.where(omega >= 0, 1.0, -1.0)
    return jnp.where(jnp.abs(theta) < 0.25, -12 * theta - 3 * omega, jnp.clip(swing, -2, 2))[..., None]


def test_a_step_by_hand():
    game = Pendulum(0.3)
    state = jnp.array([np.pi / 2, 1.0])
    after = game.step(state, jnp.array([2.0]), jnp.array([1.2, 0.8]))
    omega = 1 + 0.05 * (15 * 1.2 + 3 * 2 / 0.8)
    np.testing.assert_allclose(after, [np.pi / 2 + 0.05 * omega, omega], rtol=1e-6)


def test_reward_is_of_the_state_before_the_step_and_of_the_executed_action():
    game = Pendulum(0.25, kind="noisy", action_cost=0.5)
    played = play(game, jnp.array([3 * np.pi / 2, 1.0]), jnp.array([2.0]), jnp.array([-2.0]), KEY)
    assert played.executed == pytest.approx(1.0)
    assert float(played.reward) == pytest.approx(-((np.pi / 2) ** 2 + 0.1 + 0.5), rel=1e-5)


def test_sparse_reward():
    game = Pendulum(0.0, rewards="sparse", action_cost=0.05)
    upright, hanging = jnp.array([1.0, 0.0, 0.0]), jnp.array([-1.0, 0.0, 0.0])
    push = jnp.array([2.0])
    assert float(game.reward(upright, 0 * push, game.neutral, upright)) == 1
    assert float(game.reward(upright, push, game.neutral, upright)) == pytest.approx(0.8)
    assert float(game.reward(hanging, 0 * push, game.neutral, hanging)) == 0
    assert float(upright_and_slow(jnp.array(0.3), jnp.array(0.0))) == 0
    assert float(upright_and_slow(jnp.array(0.0), jnp.array(0.75))) == pytest.approx(0.75**2)


def test_start_is_hanging_at_rest():
    np.testing.assert_array_equal(Pendulum(0.2).reset(KEY), np.array([np.pi, 0], np.float32))


def test_equals_gymnasium_except_beyond_the_speed_limit():
    """The same equations; Gymnasium clips the speed before it moves the angle, this pendulum after."""
    env, game = gymnasium.make("Pendulum-v1").unwrapped, Pendulum(0.0, kind="none")
    env.reset(seed=0)
    generator, beyond = np.random.default_rng(0), 0
    for _ in range(200):
        state, torque = generator.uniform([-np.pi, -8], [np.pi, 8]), generator.uniform(-2, 2, 1)
        env.state = state.copy()
        _, reward, *_ = env.step(torque)
        played = play(game, jnp.asarray(state), jnp.asarray(torque), game.neutral, KEY)
        speed = float(game.velocity(jnp.asarray(state), jnp.asarray(torque), game.neutral))
        excess = speed - np.clip(speed, -MAX_SPEED, MAX_SPEED)
        beyond += excess != 0
        np.testing.assert_allclose(played.state, env.state + np.array([DT * excess, 0]), atol=2e-6)
        assert float(played.reward) == pytest.approx(float(reward), abs=1e-5)
    assert 2 < beyond < 100


@pytest.mark.parametrize("kind", KINDS)
def test_zero_strength_changes_nothing_bit_for_bit(kind):
    with jax.disable_jit():  # XLA may round two programs of the same arithmetic differently: each operation by itself
        base = rollout(Pendulum(0.0, horizon=60, kind="none"), energy, Constant(jnp.ones(1)), KEY)
        game = Pendulum(0.0, horizon=60, kind=kind)
        for value in (game.adversary.low, game.adversary.high):
            played = rollout(game, energy, Constant(value), KEY)
            np.testing.assert_array_equal(played.obs, base.obs)
            np.testing.assert_array_equal(played.reward, base.reward)


@pytest.mark.parametrize("kind", ("adversarial", "parameter"))
@pytest.mark.parametrize("strength", (0.1, 0.3, 0.7, 0.99))
def test_neutral_physics_change_nothing_bit_for_bit(kind, strength):
    game = Pendulum(strength, kind=kind)
    base = rollout(Pendulum(0.0, kind="none"), energy, Constant(jnp.ones(1)), KEY)
    played = rollout(game, energy, Constant(game.neutral), KEY)
    np.testing.assert_array_equal(played.obs, base.obs)


def test_mass_only_enters_through_the_torque():
    game, state = Pendulum(0.5), jnp.array([1.0, 1.0])
    light, heavy = jnp.array([1.0, 0.5]), jnp.array([1.0, 1.5])
    np.testing.assert_array_equal(game.step(state, jnp.zeros(1), light), game.step(state, jnp.zeros(1), heavy))
    assert game.step(state, jnp.ones(1), light)[1] > game.step(state, jnp.ones(1), heavy)[1]


def test_the_adversary_reaches_the_system():
    """Heavy and heavily attracted, the pendulum of a controller that swings up nominally never arrives."""
    game = Pendulum(0.3)
    keys = jax.random.split(KEY, 1)
    assert mean_return(game, energy, None, keys) > -500
    assert mean_return(game, energy, Constant(game.adversary.high), keys) < -1000


def test_an_action_outside_the_box_is_clipped():
    game = Pendulum(0.2)
    wild = rollout(game, lambda obs: zero(obs) + 50, Constant(jnp.array([9.0, 9.0])), KEY)
    held = rollout(game, lambda obs: zero(obs) + 2, Constant(game.adversary.high), KEY)
    np.testing.assert_array_equal(wild.obs, held.obs)
    np.testing.assert_array_equal(wild.action, jnp.full((200, 1), 2.0))


def test_probabilistic_execution_has_the_adversarys_share():
    game = Pendulum(0.3, kind="probabilistic", horizon=2000)
    played = rollout(game, lambda obs: zero(obs) + 1, Constant(jnp.array([-2.0])), KEY)
    assert set(np.unique(played.executed)) == {-2.0, 1.0}
    assert float((played.executed == -2).mean()) == pytest.approx(0.3, abs=0.04)
    other = rollout(game, lambda obs: zero(obs) + 1, Constant(jnp.array([-2.0])), jax.random.key(1))
    assert (other.executed != played.executed).any()


def test_draw_of_a_deterministic_execution_is_its_outcome():
    game = Pendulum(0.25, kind="noisy")
    assert draw(game.execute(jnp.array([2.0]), jnp.array([-2.0])), KEY) == pytest.approx(1.0)


def test_return_is_the_sum_over_the_horizon():
    game = Pendulum(0.2, horizon=7)
    hanging = episode_return(game, zero, Constant(game.neutral), KEY)
    assert float(hanging) == pytest.approx(-7 * np.pi**2, rel=1e-5)
