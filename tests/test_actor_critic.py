"""The two-player actor-critic on the probe: its values and its play are those of the game."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from probes import GRID, Probe, Unsure, solution
from rhucrl import replay as store
from rhucrl.config import TrainConfig
from rhucrl.envs import make
from rhucrl.envs.wrap import HostGame
from rhucrl.networks.policies import Gaussian
from rhucrl.play import Episode
from rhucrl.replay import Transitions
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update as actor_critic
from rhucrl.solvers.actor_critic.update import unit, values, world
from rhucrl.solvers.base import SolverNumbers
from rhucrl.training import protocol
from rhucrl.training.loop import env_of

DISCOUNT, INNER = 0.9, np.abs(GRID) < 1.5
GAME = Probe(horizon=40, certain=True)
NUMBERS = SolverNumbers(*(jnp.float32(x) for x in (1.0, DISCOUNT, 0.5, 1e-3, 0.02, 0.0, -1.0)))


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
    state, _ = protocol.learn(
        config, protocol.ModelBased(config).initial(env), episode, jnp.float32(1), jax.random.key(0)
    )
    assert state.replay.size == 3


def test_a_return_stops_at_an_end_and_goes_on_where_it_is_cut():
    """Rewards 1, 2, 4 and values 10, 20, 30 behind them, at a discount of .9 and a trace of .5, by hand."""
    alive = jnp.array([[1.0, 1, 1], [1, 0, 1], [1, 1, 0]]).T  # cut; ended by the second step; by the third
    reward, later = (jnp.broadcast_to(jnp.array(x)[:, None], (3, 3)) for x in ([1.0, 2, 4], [10.0, 20, 30]))
    found = actor_critic.returns(reward, alive, later, NUMBERS)
    cut = 16.7275, 2 + 0.9 * (10 + 31 / 2), 4 + 0.9 * 30  # 1 + .9 (5 + 24.95 / 2)
    np.testing.assert_allclose(found[:, 0], cut, rtol=1e-5)
    np.testing.assert_allclose(found[:2, 1], (1 + 0.9 * (5 + 2 / 2), 2), rtol=1e-5)
    np.testing.assert_allclose(found[:, 2], (1 + 0.9 * (5 + 12.8 / 2), 2 + 0.9 * (10 + 4 / 2), 4), rtol=1e-5)


@pytest.mark.parametrize("lanes", [1, 2])
def test_what_is_imagined_after_an_end_teaches_nothing(lanes, monkeypatch):
    """The critics' gradient and the agent's gain, of two rollouts that differ in their third step alone."""
    shape, game = (3, lanes, 4), Probe()
    here, networks = world(game, None, everywhere()), actor_critic.begin(game, 8, jax.random.key(0)).networks
    obs, reward, later = jax.random.normal(jax.random.key(1), (3, *shape))
    obs, third = jnp.broadcast_to(obs[:, :1], shape), jnp.arange(3)[:, None, None] == 2

    @compiled()
    def learned(ends, more):
        """`ends`: with the second step; `more` is what the third has more of everything."""
        obs_, reward_, later_ = (x + more * third for x in (obs, reward, later))
        alive = jnp.ones(shape).at[1].set(1 - ends)
        paths = actor_critic.ModelRollouts(obs_[..., None], reward_, alive, jnp.zeros(shape), later_)
        monkeypatch.setattr(actor_critic, "rollouts", lambda *_: paths)
        rest = obs[0, 0, :, None], jnp.zeros((lanes - 1, 4, 1)), None, NUMBERS, 3, jax.random.key(0)
        gradient, told = jax.grad(actor_critic.loss, has_aux=True)(networks, networks.critics, here, *rest)
        return jnp.concatenate([jnp.ravel(g) for g in jax.tree.leaves(gradient.critics)]), told["gain"]

    for ends in (True, False):
        (gradient, gain), (other, again) = (learned(jnp.float32(ends), more) for more in (0.0, 0.5))
        assert np.allclose(gradient, other, atol=1e-5) == ends
        assert (float(gain) == pytest.approx(float(again))) == ends


@compiled()
def updated(problem: actor_critic.Problem, numbers: SolverNumbers) -> actor_critic.Problem:
    return one_update(problem, numbers, False)


def one_update(problem: actor_critic.Problem, numbers: SolverNumbers, frozen: bool) -> actor_critic.Problem:
    replay, corners = everywhere(), jnp.array([[-1.0], [1.0]])
    here = world(GAME, Unsure(GAME), replay)
    sizes = 2, 8, 2, 1, 0.0
    return actor_critic.improve(here, problem, replay, corners, numbers, frozen, *sizes, jax.random.key(0))[0]


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_target_critics_move_towards_the_critics_at_the_polyak_rate(rate):
    problem = actor_critic.begin(GAME, 8, jax.random.key(0))
    problem = problem._replace(targets=jax.tree.map(lambda w: w + 0.5, problem.targets))
    after = updated(problem, NUMBERS._replace(target_rate=jnp.float32(rate)))
    parts = zip(*map(jax.tree.leaves, (problem.networks.critics, after.networks.critics, problem.targets)), strict=True)
    expected = []
    for critic, moved, target in parts:
        assert (critic != moved).any()
        expected.append(target + rate * (moved - target))
    for found, wanted in zip(jax.tree.leaves(after.targets), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("agent", "adversary"), [(3.0, 1e-3), (1e-3, 3.0)])
def test_each_players_gradient_is_bounded_by_its_own_length_and_the_critics_is_not(
    agent, adversary, frozen, monkeypatch
):
    """A loss that is linear in all weights, and steps along its gradient."""
    slopes = actor_critic.ProblemNetworks(agent, adversary, 3.0, 3.0)

    def loss(networks, *_):
        sums = [sum(leaf.sum() for leaf in jax.tree.leaves(part)) for part in networks]
        return sum(slope * total for slope, total in zip(slopes, sums, strict=True)), {}

    monkeypatch.setattr(actor_critic, "loss", loss)
    monkeypatch.setattr(actor_critic, "adam", optax.identity())
    problem = actor_critic.begin(GAME, 8, jax.random.key(0))
    networks = one_update(problem, NUMBERS, frozen).networks

    def step(name):
        """How far each weight has moved, in units of the learning rate; all have moved alike."""
        before, after = (jax.tree.leaves(getattr(n, name)) for n in (problem.networks, networks))
        moved = np.concatenate([np.ravel(b - a) for a, b in zip(before, after, strict=True)]) / NUMBERS.learning_rate
        np.testing.assert_allclose(moved, moved.mean(), atol=1e-3)
        return moved.mean(), moved.size

    for name, sign, slope in (("agent", -1, 0.0 if frozen else agent), ("adversary", 1, adversary)):
        moved, size = step(name)
        assert moved == pytest.approx(sign * min(slope, actor_critic.STEEPEST / np.sqrt(size)), abs=2e-4)
    assert step("critics")[0] == pytest.approx(-3.0, abs=1e-3)
    assert step("log_temperature")[0] == pytest.approx(0.0 if frozen else -3.0, abs=1e-3)


def test_a_gradient_keeps_its_direction_and_loses_its_length():
    for length, left in ((0.5, 0.5), (1e6, actor_critic.STEEPEST), (0.0, 0.0)):
        gradient = actor_critic.bounded({"w": jnp.array([0.0, length])})
        np.testing.assert_allclose(gradient["w"], [0, left], rtol=1e-5)


def two_steps(**options):
    """What rolls out two imagined steps of three lanes: a network's, and both extremes held."""
    config = TrainConfig.preset("hopper", heads=2, model_width=8, width=8, **options)
    env = env_of(config)
    game, state = env.game, protocol.ModelBased(config).initial(env)
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
