"""The oracle against exhaustive search on short horizons, and against itself on the long one."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rhucrl.attacks.forward import worst_sequence
from rhucrl.attacks.oracle import adversary_candidates, agent_candidates, best_response, interpolate, recursion, solve
from rhucrl.attacks.rollouts import Constant, episode_return
from rhucrl.envs.pendulum import Pendulum

KEY = jax.random.key(0)


@functools.cache
def oracle(strength, grid):
    return solve(Pendulum(strength), grid)


def zero(obs):
    return jnp.zeros((*obs.shape[:-1], 1))


def energy(obs):
    """Pumps the energy of the upright rest into the pendulum, and balances near the top."""
    theta, omega = jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]
    lack = 15 - (omega**2 / 2 + 15 * obs[..., 0])
    swing = 2 * jnp.sign(lack) * jnp.where(omega >= 0, 1.0, -1.0)
    return jnp.where(jnp.abs(theta) < 0.25, -12 * theta - 3 * omega, swing)[..., None]


def exhaustive(game, state, steps, policy=None):
    """The value of `steps` more steps by trying every pair of candidates; with a policy, the adversary's alone."""
    if steps == 0:
        return jnp.zeros(state.shape[:-1])
    obs = game.observe(state)
    actions = game.agent.clip(policy(obs))[None] if policy else agent_candidates(game.agent, 9)

    def value(action, adversary):
        execution = game.execute(jnp.broadcast_to(action, (*state.shape[:-1], 1)), adversary)
        after = [game.step(state, executed, adversary) for executed in execution.action]
        gains = [game.reward(obs, executed, adversary, obs) for executed in execution.action]
        later = [exhaustive(game, s, steps - 1, policy) for s in after]
        return sum(p * (g + v) for p, g, v in zip(execution.probability, gains, later, strict=True))

    def worst(action):
        return jax.vmap(lambda adversary: value(action, adversary))(adversary_candidates(game)).min(0)

    return jax.vmap(worst)(actions).max(0)


@pytest.mark.parametrize(
    ("kind", "rewards"),
    [
        ("adversarial", "dense"),
        ("noisy", "dense"),
        ("probabilistic", "dense"),
        ("none", "dense"),
        ("parameter", "dense"),
        ("adversarial", "sparse"),
    ],
)
def test_equals_exhaustive_search_over_two_steps(kind, rewards):
    cost = 0.05 if rewards == "sparse" else 0.001
    game = Pendulum(0.0 if kind == "none" else 0.3, kind=kind, rewards=rewards, action_cost=cost, horizon=2)
    reach = jnp.array([np.pi, 8.0]) if rewards == "dense" else jnp.array([0.4, 2.0])
    states = jax.random.uniform(KEY, (64, 2), minval=-1.0) * reach
    tried = jax.jit(lambda states: exhaustive(game, states, 2))(states)
    np.testing.assert_allclose(interpolate(solve(game, 100).table, states), tried, atol=0.05)


def test_best_response_equals_exhaustive_search_over_two_steps():
    game = Pendulum(0.3, horizon=2)
    bound, adversary = best_response(game, energy, 400)
    worst = float(jax.jit(lambda state: exhaustive(game, state, 2, energy))(game.reset(KEY)))
    assert worst > -2 * np.pi**2 + 0.04  # the policy's torque counts
    assert bound == pytest.approx(worst, abs=0.02)
    assert float(episode_return(game, energy, adversary, KEY)) == pytest.approx(worst, abs=1e-4)


def test_a_search_forward_equals_exhaustive_search():
    """Over all sequences of 81 actions, with cells so fine that paths that share one are nearly the same."""
    game = Pendulum(0.3, horizon=3)
    units = jnp.array(list(itertools.product(np.linspace(-1, 1, 9), repeat=2)))

    def earned(sequence):
        actions = game.adversary.place(units[sequence])
        return episode_return(game, energy, lambda obs, time: actions[time.astype(int)], KEY)

    sequences = jnp.stack(jnp.meshgrid(*[jnp.arange(81)] * 3), -1).reshape(-1, 3)
    worst = float(jax.jit(jax.vmap(earned))(sequences).min())
    found, sequence, reached = worst_sequence(game, energy, 20)
    replayed = game.adversary.place(sequence)
    again = episode_return(game, energy, lambda obs, time: replayed[time.astype(int)], KEY)
    assert float(again) == pytest.approx(float(found), abs=1e-3)
    assert float(found) == pytest.approx(worst, abs=0.02)
    assert int(reached) > 4


def test_finer_cells_find_worse_sequences():
    game = Pendulum(0.2)
    returns = [float(worst_sequence(game, energy, cells)[0]) for cells in (2, 8, 16)]
    assert returns[2] < returns[0] - 1 and returns[2] < returns[1] + 1


def test_extreme_strength_stays_on_the_axis():
    """A hundredth of the mass kicks a hundred times harder: the fine axis has to reach that far."""
    game = Pendulum(0.99, horizon=2)
    states = jax.random.uniform(KEY, (64, 2), minval=-1.0) * jnp.array([np.pi, 8.0])
    tried = jax.jit(lambda states: exhaustive(game, states, 2, lambda obs: zero(obs) + 2))(states)
    table, _ = recursion(game, jnp.full((1, 1, 1, 1), 2.0), 100, False)
    np.testing.assert_allclose(interpolate(table, states), tried, atol=0.3)


def test_doubling_the_grid_converges():
    coarse, fine = oracle(0.2, 100).value, oracle(0.2, 200).value
    assert abs(fine - coarse) < 0.05 * abs(fine)
    assert fine == pytest.approx(-465.3, rel=0.02)  # measured with a grid of 400, which 800 confirms


def test_value_falls_with_strength():
    values = [oracle(strength, 100).value for strength in (0.0, 0.1, 0.2, 0.3)]
    assert all(weaker > 1.05 * stronger for weaker, stronger in itertools.pairwise(values)), values


def test_no_policy_beats_the_value():
    game, value = Pendulum(0.2), oracle(0.2, 200).value
    policies = {"zero": zero, "energy": energy, "nominal": oracle(0.0, 100).policy, "strong": oracle(0.3, 100).policy}
    for name, policy in policies.items():
        _, adversary = best_response(game, policy, 100)
        assert float(episode_return(game, policy, adversary, KEY)) < value + 0.02 * abs(value), name


def test_own_policy_realises_the_value():
    game, solved = Pendulum(0.2), oracle(0.2, 200)
    bound, adversary = best_response(game, solved.policy, 200)
    assert bound == pytest.approx(solved.value, rel=0.05)
    assert float(episode_return(game, solved.policy, adversary, KEY)) == pytest.approx(solved.value, rel=0.05)


@pytest.mark.slow
def test_own_policy_realises_the_value_of_a_strong_adversary():
    game, solved = Pendulum(0.3), oracle(0.3, 300)
    bound, adversary = best_response(game, solved.policy, 300)
    assert bound == pytest.approx(solved.value, rel=0.1)
    assert float(episode_return(game, solved.policy, adversary, KEY)) == pytest.approx(solved.value, rel=0.1)


def test_best_response_is_worse_than_every_constant():
    game = Pendulum(0.2)
    _, adversary = best_response(game, energy, 100)
    realised = float(episode_return(game, energy, adversary, KEY))
    constants = [float(episode_return(game, energy, Constant(v), KEY)) for v in adversary_candidates(game)]
    assert realised <= min(constants) + 1


def test_policy_is_batched():
    policy, game = eqx.filter_jit(oracle(0.2, 100).policy), Pendulum(0.2)
    obs = game.sample(KEY, 6)
    np.testing.assert_array_equal(policy(obs.reshape(2, 3, 3)).reshape(6, 1), jax.vmap(policy)(obs))


def test_an_adversary_of_an_episode_has_no_best_response():
    game = Pendulum(0.8, kind="parameter", scope="episode")
    for ask in (lambda: best_response(game, zero), lambda: solve(game)):
        with pytest.raises(ValueError, match="worst_case"):
            ask()
