"""The two-player actor-critic on the probe: its values and its play are those of the game."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import GRID, Probe, Unsure, solution
from rhucrl import protocol
from rhucrl import replay as store
from rhucrl.compilation import compiled
from rhucrl.config import TrainConfig
from rhucrl.envs import make
from rhucrl.envs.own import HostGame
from rhucrl.episodes import Episode
from rhucrl.replay import Transitions
from rhucrl.solvers import actor_critic
from rhucrl.solvers.actor_critic import unit, values, world
from rhucrl.solvers.backup import Numbers
from rhucrl.solvers.networks import Gaussian
from rhucrl.training import env_of

DISCOUNT, INNER = 0.9, np.abs(GRID) < 1.5
GAME = Probe(horizon=40, certain=True)
NUMBERS = Numbers(*(jnp.float32(x) for x in (1.0, DISCOUNT, 0.5, 1e-3, 0.02, 0.0, -1.0)))


def everywhere() -> store.Replay:
    """Start states over the whole line."""
    obs = jnp.asarray(GRID, jnp.float32)[:, None]
    data = Transitions(obs, 0 * obs, 0 * obs, obs)
    return store.add(store.empty(len(GRID), (1, 1, 1), 1), data, jnp.int32(len(GRID)), jax.random.key(0))


@functools.cache
def solved(sign: int = 0, reach: float = 0.0, lanes: int = 3, frozen: bool = False, strength: float = 1.0, noise=0.0):
    game, replay = eqx.tree_at(lambda game: game.strength, GAME, jnp.float32(strength)), everywhere()
    model = Unsure(game, reach, noise)
    problem = actor_critic.begin(game, 32, jax.random.key(0))
    if frozen:  # the response to an agent that is already good
        problem = problem._replace(networks=problem.networks._replace(agent=solved()[1].networks.agent))

    problem, _ = improve(game, model, replay, problem, sign, frozen, lanes, jax.random.key(1))
    return world(game, model, replay, sign), problem


@compiled("sign", "frozen", "lanes")
def improve(game, model, replay, problem, sign, frozen, lanes, key):
    here, corners = world(game, model, replay, sign), jnp.array([[-1.0], [1.0]])
    return actor_critic.improve(here, problem, replay, corners, NUMBERS, frozen, lanes, 64, 4, 2000, 0.0, key)


def value(solved) -> np.ndarray:
    here, problem = solved
    obs = jnp.asarray(GRID, jnp.float32)[:, None]
    return np.asarray(values(here, problem.networks.critics, obs, unit(GAME, DISCOUNT)).mean(0))


def action(solved) -> np.ndarray:
    here, problem = solved
    policy = Gaussian(problem.networks.agent, here.normaliser, GAME.agent)
    return np.asarray(policy(jnp.asarray(GRID, jnp.float32)[:, None]))[:, 0]


def test_the_value_is_that_of_the_game_and_rather_too_low():
    """The worst of several sampled rollouts is a little worse than the rollout of the worst adversary."""
    exact = solution(GAME, DISCOUNT)
    error = (value(solved()) - exact.value)[INNER] / np.ptp(exact.value)
    assert error.min() > -0.25 and error.max() < 0.05


def test_noise_is_no_adversary():
    """Where adversaries can do nothing, to be judged against several of them is to be judged against one."""
    alone, against, quiet = (
        value(solved(frozen=True, lanes=lanes, strength=0.0, noise=noise))[INNER].mean()
        for lanes, noise in ((1, 0.3), (4, 0.3), (1, 0.0))
    )
    assert abs(against - alone) < 0.2 * (quiet - alone)


def test_the_agents_worst_case_is_nearly_the_value_of_the_game():
    exact, got = solution(GAME, DISCOUNT), solution(GAME, DISCOUNT, action(solved())[:, None])
    idle = solution(GAME, DISCOUNT, 0 * GRID[:, None])
    lost = (exact.value - got.value)[INNER].mean()
    assert lost < 0.05 * (exact.value - idle.value)[INNER].mean()


@pytest.mark.parametrize(("sign", "least", "most"), [(1, 0.2, 2.5), (-1, 0.8, 4.0)])
def test_optimism_is_worth_something_and_pessimism_costs_no_less_than_it_should(sign, least, most):
    plain, exact = (solution(GAME, DISCOUNT, reach=reach, sign=sign).value for reach in (0.0, 0.1))
    gained, all_of_it = (value(solved(sign, 0.1)) - value(solved()))[INNER].mean(), (exact - plain)[INNER].mean()
    assert least < gained / all_of_it < most


def test_the_response_is_the_best_one():
    frozen = solved(frozen=True, lanes=1)
    exact = solution(GAME, DISCOUNT, action(solved())[:, None])
    here, problem = frozen
    adversary = Gaussian(problem.networks.adversary, here.normaliser, GAME.adversary)
    shove = np.asarray(adversary(jnp.asarray(GRID, jnp.float32)[:, None]))[:, 0]
    matters = INNER & (np.abs(GRID) > 0.3)
    assert (np.sign(shove) == np.sign(exact.shove))[matters].mean() > 0.9
    assert np.abs(shove)[matters].mean() > 0.6


@pytest.mark.parametrize(("name", "reach"), [("inverted-pendulum", 2.0), ("half-cheetah", 0.0)])
def test_an_end_that_is_known_is_within_reach_before_it_has_been_seen(name, reach):
    game = make(name).game
    sizes = game.predicted_size, game.agent.size, game.adversary.size
    here = world(game, None, store.empty(1, sizes, 1)._replace(size=jnp.int32(1)), 0)
    assert here.limits.high[0] == reach


def test_nothing_is_learned_from_what_follows_an_end():
    config = TrainConfig.preset("inverted-pendulum", episodes=1, horizon=5, heads=2, model_width=4, model_rounds=1)
    env = env_of(config)
    obs = jnp.zeros((5, 4)).at[3:, 0].set(1.0)  # at the rail from the fourth step on
    rows = Transitions(obs, jnp.zeros((5, 1)), jnp.zeros((5, 2)), obs)
    episode = Episode(rows, jnp.int32(5), jnp.float32(5))
    state, _ = protocol.learn(config, protocol.initial(config, env), episode, jnp.float32(1), jax.random.key(0))
    assert state.replay.size == 3


def test_a_gradient_keeps_its_direction_and_loses_its_length():
    for length, left in ((0.5, 0.5), (1e6, actor_critic.STEEPEST), (0.0, 0.0)):
        gradient = actor_critic.bounded({"w": jnp.array([0.0, length])})
        np.testing.assert_allclose(gradient["w"], [0, left], rtol=1e-5)


def two_steps(**options):
    """What rolls out two imagined steps of three lanes: a network's, and both extremes held."""
    config = TrainConfig.preset("hopper", heads=2, model_width=8, width=8, **options)
    env = env_of(config)
    game, state = env.game, protocol.initial(config, env)
    here = world(game, state.model, state.replay)
    starts = game.starts(jax.random.key(0), 64)
    extremes = jnp.stack([jnp.broadcast_to(edge, (64, game.adversary.size)) for edge in game.adversary])
    scale, networks = unit(game, NUMBERS.discount), state.learner.agent.networks
    arguments = networks, state.learner.agent.targets, starts, extremes, None, scale, NUMBERS, 2, jax.random.key(1)
    here = here._replace(limits=game.observation, normaliser=state.learner.normaliser)  # nothing has been seen yet
    return functools.partial(actor_critic.rollouts, here, *arguments)


@pytest.mark.parametrize("sign", [0, 1])
def test_recorded_innovations_make_a_biased_model_exact_where_the_agent_does_what_was_done(sign):
    """An agent that does nothing, in a model that believes in a drift, imagines what has really happened."""
    game, length = Probe(strength=0.0, certain=True), 3
    obs = jnp.linspace(-1.0, 1.0, 8)[:, None]  # it happened: s moves on by 2/7 per step, though nobody has pushed
    still = jnp.zeros((7, 1))
    replay = store.add(
        store.empty(7, (1, 1, 1), 1), Transitions(obs[:-1], still, still, obs[1:]), jnp.int32(7), jax.random.key(0)
    )
    here = world(game, Unsure(game, aleatoric=5.0), replay, sign, contested=False)
    missed = actor_critic.innovations(here.model, replay)
    np.testing.assert_allclose(missed, np.full((7, 1), 2 / 7), atol=1e-6)
    problem = actor_critic.begin(game, 8, jax.random.key(0))
    agent = jax.tree.map(jnp.zeros_like, problem.networks.agent)
    agent = eqx.tree_at(lambda a: a.layers[-1].bias, agent, jnp.array([0.0, -50.0]))  # no action, and no noise on it
    networks = problem.networks._replace(agent=agent)
    index = jnp.arange(4)
    steps = index + jnp.arange(length)[:, None]
    paths = actor_critic.rollouts(
        here._replace(limits=game.observation), networks, problem.targets, obs[index], jnp.zeros((0, 4, 1)),
        missed[steps], jnp.float32(1), NUMBERS, length, jax.random.key(1),
    )  # fmt: skip
    np.testing.assert_allclose(paths.obs[:, 0], obs[steps], atol=0.02)  # the least noise of a policy


def test_a_probabilistic_mixture_executes_the_adversary_now_and_then():
    imagine = two_steps(setting="action", mixture="probabilistic", strength=0.4)
    apart = jnp.abs(jnp.diff(imagine().obs[1, 1:], axis=0))
    share = (apart.max(-1) > 1e-4).mean()
    assert 0.2 < share < 0.6


@pytest.mark.parametrize(("scope", "held"), [("episode", True), ("step", False)])
def test_an_adversary_of_an_episode_answers_once(monkeypatch, scope, held):
    answers = []
    execute = HostGame.execute
    monkeypatch.setattr(HostGame, "execute", lambda game, a, b: (answers.append(b[0]), execute(game, a, b))[1])
    imagine = two_steps(setting="parameter", scope=scope)
    with jax.disable_jit():
        imagine()
    first, second = answers
    assert (first == second).all() == held
