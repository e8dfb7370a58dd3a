"""The solver against exact dynamic programming: values, both players' actions, eta, termination, traces."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import GRID, SHOVES, Probe, Unsure, solution
from rhucrl.hallucination import KEENNESS, choose_eta
from rhucrl.models.base import Prediction
from rhucrl.models.known import KnownModel
from rhucrl.networks import layers
from rhucrl.networks.critics import Critic
from rhucrl.solvers.base import SolverNumbers
from rhucrl.solvers.bounds import Contest, bounds
from rhucrl.solvers.look_ahead import value_iteration
from rhucrl.solvers.look_ahead.backup import (
    consider,
    look_ahead,
    settle,
    stateless,
    unit,
    value,
)
from rhucrl.solvers.look_ahead.candidates import adversary_candidates, agent_candidates
from rhucrl.solvers.look_ahead.policies import AdversaryPolicy, AgentPolicy, CriticPlayer
from rhucrl.solvers.look_ahead.solver import held

DISCOUNT = 0.9
STATES = np.array([-1.5, -0.7, -0.2, 0.1, 0.5, 1.1, 1.6])
ROUNDS, UPDATES = 8, 100
POINTS = agent_candidates(Probe().agent, 9)


def numbers(trace: float = 0.9) -> SolverNumbers:
    return SolverNumbers(*map(jnp.float32, (1.0, DISCOUNT, trace, 4e-3, 0.1, 0.05, -1.0)))


def anything(obs):
    return jnp.broadcast_to(POINTS, (*obs.shape[:-1], *POINTS.shape))


def hesitant(obs):
    """A frozen agent: it steers to the origin with a fifth of what it would need."""
    return jnp.clip(-0.2 * obs, -1, 1)[..., None, :]


@functools.partial(jax.jit, static_argnames=("proposals", "opponent", "rounds"))
def solve(game, model, sign, numbers, proposals=anything, opponent=True, rounds=ROUNDS):
    """A critic after a few hundred updates on fresh pools of rollouts."""
    adversary = adversary_candidates(game, opponent)
    inputs = 1 + (game.scope == "episode")

    def one_round(values, key):
        keys = jax.random.split(key, 3)
        starts = game.sample(keys[0], 256)
        pool = value_iteration.rollouts(
            game, model, values.target, starts, proposals, adversary, sign, numbers, 3, keys[1]
        )
        return value_iteration.improve(game, values, pool, adversary, sign, numbers, 64, UPDATES, keys[2])

    values = value_iteration.start(Critic(inputs, 16, 32, 0.3, jax.random.key(0)))
    return jax.lax.scan(one_round, values, jax.random.split(jax.random.key(1), rounds))[0].average


def solved(game, model=None, sign=0, trace=0.9, **options):
    critic = solve(game, model or Unsure(game), jnp.float32(sign), numbers(trace), **options)
    return critic, np.asarray(value(game, critic, jnp.asarray(STATES, jnp.float32)[:, None], game.neutral))


def player(game, critic, model=None, sign=0):
    adversary = adversary_candidates(game, True)
    return CriticPlayer(game, model or Unsure(game), critic, jnp.float32(sign), numbers(), adversary)


def assert_close(found, exact: np.ndarray, share: float = 0.02):
    """Within a share of the exact values' range."""
    np.testing.assert_allclose(found, exact, atol=share * np.ptp(exact))


def test_value_and_both_policies_are_those_of_the_game():
    game, states = Probe(), jnp.asarray(STATES, jnp.float32)[:, None]
    exact, model = solution(game, DISCOUNT), KnownModel(game)
    critic, found = solved(game, model)
    assert_close(found, exact.at(STATES))
    mine = player(game, critic, model)
    actions = AgentPolicy(mine, POINTS)(states)
    index = np.abs(GRID[:, None] - STATES).argmin(0)
    np.testing.assert_allclose(actions[:, 0], exact.action[index], atol=0.3)
    shoves = AdversaryPolicy(mine)(states, actions)[:, 0]
    clear = np.abs(STATES) > 0.3  # elsewhere both directions are nearly as bad
    np.testing.assert_array_equal(shoves[clear], exact.shove[index][clear])


def test_without_an_opponent_it_is_the_value_of_one_player():
    game = Probe()
    alone, against = solution(game, DISCOUNT, shoves=0.0), solution(game, DISCOUNT)
    assert np.ptp(alone.at(STATES) - against.at(STATES)) > 0.2 * np.ptp(alone.at(STATES))
    assert_close(solved(game, opponent=False)[1], alone.at(STATES))


@pytest.mark.parametrize(("certain", "share"), [(False, 0.02), (True, 0.2)])  # certain: candidates are held
def test_the_agents_worst_case_is_the_value_of_the_game(certain, share):
    game = Probe(certain=certain)
    policy = AgentPolicy(player(game, solved(Probe())[0]), POINTS)
    actions = np.asarray(policy(jnp.asarray(GRID, jnp.float32)[:, None]))
    assert_close(solution(game, DISCOUNT, actions).at(STATES), solution(game, DISCOUNT).at(STATES), share)


def test_eta_is_worth_what_it_is_worth_in_the_game():
    game, sigma = Probe(goal=2.0), 0.1
    exact = {sign: solution(game, DISCOUNT, reach=sigma, sign=sign).at(STATES) for sign in (1, 0, -1)}
    found = {sign: solved(game, Unsure(game, epistemic=sigma), sign)[1] for sign in (1, 0, -1)}
    for more, less in ((1, 0), (0, -1)):
        apart = exact[more] - exact[less] > 0.02 * np.ptp(exact[less])
        assert apart.sum() >= 4
        assert (found[more] > found[less])[apart].all()
    assert_close(found[0], exact[0])
    assert_close(found[-1], exact[-1])
    # Optimism hesitates where little is to be gained; where the value is steep it takes most of what there is.
    assert (found[1] < exact[1] + 0.01 * np.ptp(exact[1])).all()
    assert (found[1] - exact[0])[0] > 0.7 * (exact[1] - exact[0])[0]


def test_eta_maximises_or_minimises_along_the_slope():
    game = Probe()
    prediction = Prediction(jnp.zeros(4), jnp.full(4, 0.5), jnp.ones(4))
    full = KEENNESS * float(unit(game))
    slope = jnp.array([-8.0, 0.0, 0.5, 8.0]) * full  # beta sigma is 1
    eta = {sign: choose_eta(unit(game), prediction, slope, jnp.float32(sign), jnp.float32(2)) for sign in (1, 0, -1)}
    np.testing.assert_allclose(eta[1], [-1, 0, 0.5, 1], rtol=1e-5)
    np.testing.assert_array_equal(eta[0], np.zeros(4))
    np.testing.assert_array_equal(eta[-1], [1, 0, -1, -1])


def test_the_response_to_a_frozen_agent_is_the_best_one():
    game = Probe()
    frozen = np.asarray(hesitant(GRID[:, None]))[:, 0]
    exact = solution(game, DISCOUNT, actions=frozen, reach=0.1, sign=-1)
    model = Unsure(game, epistemic=0.1)
    critic, found = solved(game, model, -1, proposals=hesitant, rounds=16)
    assert_close(found, exact.at(STATES))
    states = jnp.asarray(STATES, jnp.float32)[:, None]
    shoves = AdversaryPolicy(player(game, critic, model, -1))(states, hesitant(states)[:, 0])
    np.testing.assert_array_equal(shoves[:, 0], np.sign(STATES))


def test_probabilistic_execution_is_averaged():
    game = Probe(mix=0.4)
    assert_close(solved(game)[1], solution(game, DISCOUNT).at(STATES), 0.1)  # outcomes are sampled along a trace


def test_look_ahead_weighs_outcomes_by_their_probability():
    game, obs = Probe(mix=0.25), jnp.array([0.5])
    adversary = jnp.array([[-1.0], [1.0]])
    considered = consider(game, KnownModel(game), obs, jnp.array([[0.5]]), adversary)
    nothing = jnp.zeros((1, 1))
    q = look_ahead(game, lambda x: 0 * x[..., 0], considered, adversary, nothing, jnp.float32(0), numbers(), nothing[0])
    expected = -0.25 - 0.05 * (0.75 * 0.25 + 0.25 * 1.0)
    np.testing.assert_allclose(q, np.full((1, 2), expected), rtol=1e-6)


@pytest.mark.parametrize("trace", [0.0, 0.9])
def test_the_end_of_the_game_stops_the_bootstrap(trace):
    game = Probe(goal=-2.0, end=0.53)
    exact, endless = solution(game, DISCOUNT).at(0.5), solution(Probe(goal=-2.0), DISCOUNT).at(0.5)
    assert exact > endless + 20  # at .5 one push ends it
    assert solved(game, trace=trace)[1][STATES == 0.5] == pytest.approx(exact, abs=0.5)


def test_bounds_earn_nothing_after_the_end():
    game = Probe(end=-np.inf)
    mine = player(game, Critic(1, 4, 4, 0.3, jax.random.key(0)), KnownModel(game))
    policy, response = AgentPolicy(mine, POINTS), AdversaryPolicy(mine)

    def flat(obs, *_):
        return jnp.zeros_like(obs)

    sides = (policy, response, response, *held(mine.adversary), flat, flat)
    found = bounds(Contest(game, mine.model, *sides, game.project, jnp.float32(1)), 1, jax.random.key(0))
    first = game.reward(jnp.ones(1), policy(jnp.ones(1)), jnp.zeros(1), jnp.zeros(1))
    assert len(found) == 3
    np.testing.assert_allclose(list(found.values()), np.full(3, first), rtol=1e-5)


def test_returns_are_watkins_lambda_returns():
    game = Probe()
    q = jnp.array([[[[5.0, 4.0], [9.0, 1.0]]] * 4])  # max-min: the first action, the second shove, 4
    reward = jnp.array([[[[0.0, t + 1.0], [7.0, 7.0]] for t in range(4)]])
    taken = jnp.array([[1, 1, 2, 1]])  # the third step strays
    best = settle(game, q, jnp.full(2, 0.5))
    n = numbers()._replace(discount=jnp.float32(0.5), trace=jnp.float32(0.25))
    found = value_iteration.returns(q, reward, taken, best, n)
    last = cut = 4.0
    second = 0.75 * 4 + 0.25 * (2 + 0.5 * cut)
    first = 0.75 * 4 + 0.25 * (1 + 0.5 * second)
    np.testing.assert_allclose(found[0, :, 0], [first, second, cut, last], rtol=1e-6)


def test_slow_weights_move_a_small_step_towards_the_fast_ones():
    slow, fast = {"w": jnp.zeros(3)}, {"w": jnp.ones(3)}
    np.testing.assert_allclose(layers.towards(slow, fast, jnp.float32(0.02))["w"], 0.02, rtol=1e-6)


def test_an_update_moves_target_and_average_by_their_own_rates():
    game, key = Probe(), jax.random.key(0)
    before = value_iteration.start(Critic(1, 4, 4, 0.3, key))
    adversary = adversary_candidates(game, True)
    n = numbers()
    pool = value_iteration.rollouts(
        game, KnownModel(game), before.target, game.sample(key, 4), anything, adversary, jnp.float32(0), n, 2, key
    )
    after, _ = value_iteration.improve(game, before, pool, adversary, jnp.float32(0), n, 4, 1, key)
    moved = after.critic.layers[0].weight - before.critic.layers[0].weight
    assert jnp.abs(moved).max() > 1e-3
    for slow, rate in ((after.target, n.target_rate), (after.average, n.average_rate)):
        np.testing.assert_allclose(slow.layers[0].weight - before.critic.layers[0].weight, rate * moved, atol=1e-6)


def test_an_adversary_of_one_value_per_episode_is_evaluated_value_by_value():
    game = Probe(scope="episode")
    frozen = np.asarray(hesitant(GRID[:, None]))[:, 0]
    critic, _ = solved(game, proposals=hesitant)
    states = jnp.asarray(STATES, jnp.float32)[:, None]
    for shove in SHOVES:
        exact = solution(game, DISCOUNT, actions=frozen, shoves=shove).at(STATES)
        assert_close(value(game, critic, states, jnp.array([shove])), exact, 0.06)
    theirs = AdversaryPolicy(player(game, critic))
    np.testing.assert_array_equal(theirs(states, states), np.ones_like(states))  # away from the start, which is 1


def test_the_stateless_adversary_weighs_the_worst_value_most():
    game, adversary = Probe(scope="episode"), jnp.asarray(SHOVES, jnp.float32)[:, None]

    def critic(x):  # worst where abar is .5
        return 0.3 * jnp.square(x[..., 1] - 0.5) - 1

    weights = stateless(game, critic, jnp.ones(1), adversary)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)
    np.testing.assert_array_equal(jnp.argsort(weights)[::-1][:2], [3, 4])
    expected = np.exp(-3 * np.square(SHOVES - 0.5))
    np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-4)
    np.testing.assert_array_equal(
        AdversaryPolicy(player(game, critic))(jnp.zeros((4, 1)), jnp.zeros((4, 1))), np.full((4, 1), 0.5)
    )
    # Against these weights the agent takes the best mean, not the best minimum.
    q = jnp.array([[0.0, 0.0, 0.0, 1.0, 1.0], [0.4, 0.4, 0.4, 0.4, 0.4]])
    action, _, row = settle(game, q, weights)
    assert action == 0
    assert row.shape == (5,)
    assert settle(Probe(), q, weights)[0] == 1


def test_a_critic_counts_in_units_of_the_rewards():
    game = Probe()
    assert float(unit(game)) == pytest.approx(4.05 * 20 / 8)
    assert float(value(game, lambda x: x[..., 0] - 100, jnp.zeros(1), game.neutral)) == pytest.approx(-4.05 * 20)
