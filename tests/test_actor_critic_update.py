"""What an update of the two-player actor-critic does, and what it imagines: targets, signs, ends, opponents."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from line_problem import (
    AGENT,
    ALONE,
    CORNERS,
    DISCOUNT,
    GAME,
    NUMBERS,
    OPTIONS,
    RESPONSE,
    everywhere,
    start,
    world,
)
from probes import EFFORT, PUSH, SHOVE, Probe, Unsure
from rhucrl import replay as store
from rhucrl.config import TrainConfig
from rhucrl.envs import make
from rhucrl.hallucination import sketched
from rhucrl.models import ensemble
from rhucrl.replay import Transitions
from rhucrl.runtime.compilation import compiled
from rhucrl.solvers.actor_critic import update as actor_critic
from rhucrl.solvers.actor_critic.imagination import (
    Ending,
    Imagined,
    Opponents,
    everybody,
    imagine,
    lanes,
    somebody,
)
from rhucrl.solvers.actor_critic.problem import Problem, ProblemNetworks, Role, begin
from rhucrl.solvers.actor_critic.solver import RULES, ActorCriticSolver, respond
from rhucrl.solvers.base import SolverNumbers
from rhucrl.solvers.bounds import DEPLOYED, NOBODY, Contest
from rhucrl.solvers.bounds import rollouts as whole_episodes


def one_update(problem: Problem, role: Role, numbers: SolverNumbers, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """The last of a few updates after which all players learn; what came before has changed nothing."""
    monkeypatch.setattr(actor_critic, "REFILL", 1)
    options = dataclasses.replace(OPTIONS, updates=1 / GAME.horizon, critics_first=0.0)
    return compiled()(functools.partial(
        actor_critic.improve, world(GAME, Unsure(GAME)), replay=everywhere(), corners=CORNERS, role=role,
        options=options, numbers=numbers, key=jax.random.key(0),
    ))(problem=problem)[0]  # fmt: skip


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_target_critics_move_towards_the_critics_at_the_polyak_rate(rate, monkeypatch):
    problem = begin(GAME, 8, 2, jax.random.key(0))
    problem = problem._replace(targets=jax.tree.map(lambda w: w + 0.5, problem.targets))
    after = one_update(problem, AGENT, NUMBERS._replace(target_rate=jnp.float32(rate)), monkeypatch)
    parts = zip(*map(jax.tree.leaves, (problem.networks.critics, after.networks.critics, problem.targets)), strict=True)
    expected = []
    for critic, moved, target in parts:
        assert (critic != moved).any()
        expected.append(target + rate * (moved - target))
    for found, wanted in zip(jax.tree.leaves(after.targets), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_the_policy_that_acts_moves_towards_the_one_that_learns(rate, monkeypatch):
    problem = begin(GAME, 8, 2, jax.random.key(0))
    problem = problem._replace(averaged=jax.tree.map(lambda w: w + 0.5, problem.averaged))
    after = one_update(problem, AGENT, NUMBERS._replace(average_rate=jnp.float32(rate)), monkeypatch)
    expected = jax.tree.map(lambda old, new: old + rate * (new - old), problem.averaged, after.networks.agent)
    for found, wanted in zip(*map(jax.tree.leaves, (after.averaged, expected)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_an_episode_goes_on_with_the_optimiser_of_the_last(monkeypatch):
    """Adam that begins anew makes steps of full size, whatever the gradient."""
    before = begin(GAME, 8, 2, jax.random.key(0))
    after = one_update(before, AGENT, NUMBERS, monkeypatch)
    again = one_update(after, AGENT, NUMBERS, monkeypatch)
    assert [int(problem.optimiser.count) for problem in (before, after, again)] == [0, 1, 2]


@pytest.mark.parametrize("role", [AGENT, RESPONSE, Role(1, True, False), Role(-1, True, True)])
@pytest.mark.parametrize(("agent", "adversary"), [(3.0, 1e-3), (1e-3, 3.0)])
def test_each_player_steps_its_own_way_and_its_gradient_is_bounded_by_its_own_length(
    agent, adversary, role, monkeypatch
):
    """A loss that is linear in all weights, and steps along its gradient."""
    slopes = ProblemNetworks(agent, adversary, 2.0, 3.0, 3.0)

    def loss(networks, *_):
        sums = [sum(leaf.sum() for leaf in jax.tree.leaves(part)) for part in networks]
        return sum(slope * total for slope, total in zip(slopes, sums, strict=True)), {}

    monkeypatch.setattr(actor_critic, "loss", loss)
    monkeypatch.setattr(actor_critic, "adam", optax.identity())
    problem = begin(GAME, 8, 2, jax.random.key(0))
    networks = one_update(problem, role, NUMBERS, monkeypatch).networks

    def step(name):
        """How far each weight has moved, in units of the learning rate; all have moved alike."""
        before, after = (jax.tree.leaves(getattr(n, name)) for n in (problem.networks, networks))
        moved = np.concatenate([np.ravel(b - a) for a, b in zip(before, after, strict=True)]) / NUMBERS.learning_rate
        np.testing.assert_allclose(moved, moved.mean(), atol=1e-3)
        return moved.mean(), moved.size

    still = 0.0 if role.frozen else 1.0
    for name, sign, slope in (("agent", -still, agent), ("adversary", 1, adversary), ("eta", -(role.sign or 1), 2.0)):
        moved, size = step(name)
        assert moved == pytest.approx(sign * min(slope, actor_critic.STEEPEST / np.sqrt(size)), abs=2e-4), name
    assert step("critics")[0] == pytest.approx(-3.0, abs=1e-3)
    assert step("log_temperature")[0] == pytest.approx(-3.0 * still, abs=1e-3)


def test_only_critics_learn_before_they_are_awake():
    networks = begin(GAME, 8, 2, jax.random.key(0)).networks
    slope = jax.tree.map(jnp.ones_like, networks)
    asleep = actor_critic.directed(slope, Role(1, True, False), jnp.float32(0))
    moved = {
        name: float(sum(jnp.abs(g).sum() for g in jax.tree.leaves(getattr(asleep, name)))) for name in asleep._fields
    }
    assert moved.pop("critics") > 0 and set(moved.values()) == {0.0}


def test_a_gradient_keeps_its_direction_and_loses_its_length():
    for length, left in ((0.5, 0.5), (1e6, actor_critic.STEEPEST), (0.0, 0.0)):
        gradient = actor_critic.bounded({"w": jnp.array([0.0, length])})
        np.testing.assert_allclose(gradient["w"], [0, left], rtol=1e-5)


def test_nothing_counts_after_an_end():
    """Rewards 1, 2, 4, then a value of 8, at a discount of .9: cut, ended by the second step, by the third."""
    here = world(GAME, Unsure(GAME))
    alive = jnp.array([[1.0, 1, 1], [1, 1, 0], [1, 1, 1]]).T[:, None]
    ended = jnp.array([[1.0, 0, 0]])
    reward = jnp.broadcast_to(jnp.array([1.0, 2, 4])[:, None, None], (3, 1, 3))
    nothing = jnp.zeros((3, 1, 3))
    rows = Imagined(nothing[..., None], nothing[..., None], nothing[..., None], reward, alive, nothing, nothing[:, 0])
    there = actor_critic.behind(rows, Ending(nothing[0], nothing[0], nothing[0], ended, nothing[0]), 1.0)
    found = actor_critic.value_ahead(here, rows, 8.0 * there.alive, 0 * reward, 1.0)
    np.testing.assert_allclose(found[0], (1 + 1.8 + 3.24 + 5.832, 1 + 1.8, 1 + 1.8 + 3.24), rtol=1e-5)


@pytest.mark.parametrize("trace", [0.0, 0.1, 0.9])
def test_a_trace_mixes_the_returns_of_all_lengths(trace):
    """Of a rollout that lives, and of one that ends after its second step: the recursion of a lambda-return."""
    here, draw = world(GAME, Unsure(GAME)), np.random.default_rng(0).normal
    reward, value = draw(size=(3, 1, 2)), draw(size=(3, 1, 2))
    alive = np.array([[1.0, 1], [1, 1], [1, 0], [1, 0]])[:, None]
    expected = 0.0
    for step in (2, 1, 0):
        ahead = alive[step + 1] * value[step]
        longer = ahead if step == 2 else (1 - trace) * ahead + trace * expected
        expected = alive[step] * reward[step] + DISCOUNT * longer
    flat = jnp.zeros((3, 1, 2))
    rows = Imagined(
        flat[..., None], flat[..., None], flat[..., None], *map(jnp.asarray, (reward, alive[:3])), flat, flat
    )
    there = actor_critic.behind(rows, Ending(*(x[0] for x in rows[:3]), jnp.asarray(alive[3]), flat[0]), trace)
    found = actor_critic.value_ahead(here, rows, there.alive * value, 0 * flat, trace)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 2.0), (0.25, 1.25), (1.0, -1.0)])
def test_so_many_rollouts_begin_where_episodes_do(share, expected, monkeypatch):
    """Episodes begin at -1, all that has been seen is 2: the mean of the states that an update starts from."""
    game, state = Probe(horizon=500, certain=True), jnp.full((8, 1), 2.0)
    monkeypatch.setattr(Probe, "starts", lambda self, key, n: jnp.full((n, 1), -1.0))
    monkeypatch.setattr(
        actor_critic, "loss", lambda networks, *rest: (0.0 * networks.log_temperature, {"s": rest[4].mean()})
    )
    seen = Transitions(state, 0 * state, 0 * state, state)
    replay = store.add(store.empty(8, (1, 1, 1), 2), seen, jnp.int32(8), jax.random.key(0))
    options = dataclasses.replace(OPTIONS, beginnings=share, start_steps=1, batch=64, held=0, nobody=False, updates=0.4)
    _, metrics = actor_critic.improve(
        world(game, Unsure(game)), start(), replay, CORNERS, ALONE, options, NUMBERS, jax.random.key(0)
    )
    assert float(metrics["s"]) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("temperature", [None, 0.3])
def test_the_worth_of_entropy_is_learned_or_given(temperature, monkeypatch):
    monkeypatch.setattr(actor_critic, "REFILL", 1)
    options = dataclasses.replace(OPTIONS, updates=1 / GAME.horizon, critics_first=0.0, temperature=temperature)
    after, metrics = actor_critic.improve(
        world(GAME, Unsure(GAME)), start(), everywhere(), CORNERS, AGENT, options, NUMBERS, jax.random.key(0)
    )
    kept = float(after.networks.log_temperature) == -6
    assert kept == (temperature is not None)
    assert float(metrics["temperature_entropy"]) == pytest.approx(temperature or np.exp(-6), rel=1e-4)


def rollouts(game: Probe, starts: list[float], opponents: Opponents, role: Role = AGENT, length: int = 3):
    networks, s = begin(game, 8, 2, jax.random.key(3)).networks, jnp.asarray(starts)[:, None]
    here = world(game, Unsure(game))
    return imagine(here, networks, role, s, opponents, jnp.float32(1), length, jax.random.key(1))


def test_what_is_imagined_knows_where_it_has_ended():
    """Beyond s = 1 the game is over: who starts at 1.5 has ended after the first step, whatever anybody does."""
    game = Probe(end=jnp.float32(1.0), certain=True)
    rows, ending = rollouts(game, [1.8, -1.8], Opponents(jnp.zeros(2, bool), jnp.zeros((2, 2, 1))))
    np.testing.assert_array_equal(rows.alive[:, 0], [[1, 1], [0, 1], [0, 1]])
    np.testing.assert_array_equal(ending.alive, [[0, 1], [0, 1]])


def test_every_lane_meets_its_own_adversary_and_the_same_luck():
    held = jnp.array([[[9.0], [9.0]], [[-1.0], [1.0]], [[0.0], [0.0]]])
    opponents = Opponents(jnp.array([True, False]), held)
    rows, ending = rollouts(GAME, [0.0, 0.0], opponents)
    np.testing.assert_array_equal(opponents.manner, [[0, 1], [1, 1], [1, 1]])
    np.testing.assert_array_equal(rows.adversary[:, 1:], jnp.broadcast_to(held[1:], (3, 2, 2, 1)))
    np.testing.assert_array_equal(ending.adversary[1:], held[1:])  # nobody else takes over
    assert (rows.adversary[:, 0, 1] == 9).all() and (jnp.abs(rows.adversary[:, 0, 0]) < 1).all()
    np.testing.assert_array_equal(rows.action[0], jnp.broadcast_to(rows.action[0, :1], rows.action[0].shape))
    np.testing.assert_allclose(rows.obs[1, 1] - rows.obs[1, 2], SHOVE * held[1], atol=1e-6)


def test_a_rule_answers_every_state():
    """Forward from s = .3 on, backward before: in lane 1 always, in lane 0 where it is not the network's turn."""
    rule = jnp.broadcast_to(jnp.array([1.0, -0.3]), (2, 3, 1, 2))
    ruled = jnp.array([[True, True, False], [True, True, True]])
    held = jnp.full((2, 3, 1), 0.5)
    opponents = Opponents(jnp.array([True, False, False]), held, rule, ruled)
    np.testing.assert_array_equal(opponents.manner, [[0, -1, 1], [-1, -1, -1]])
    rows, ending = rollouts(GAME, [0.5, 0.2, 0.2], opponents, length=12)
    for lane, n in ((0, 1), (1, 0), (1, 1), (1, 2)):
        path, shoves = rows.obs[:, lane, n, 0], rows.adversary[:, lane, n, 0]
        np.testing.assert_array_equal(shoves, jnp.where(path >= 0.3, 1, -1))
        assert ending.adversary[lane, n, 0] == (1 if ending.obs[lane, n, 0] >= 0.3 else -1)
    assert (rows.adversary[:, 0, 2] == 0.5).all() and (jnp.abs(rows.adversary[:, 0, 0]) < 1).all()


@pytest.mark.parametrize(("options", "manners"), [({}, {-1, 0, 1}), ({"rules": 0}, {0, 1}), ({"held": 0}, {-1, 0, 1})])
def test_start_states_and_lanes_meet_everybody(options, manners):
    rules = jnp.array([[[3.0, 0.0]], [[-3.0, 1.0]]])
    here, its = (
        world(GAME, Unsure(GAME), rules=rules),
        dataclasses.replace(OPTIONS, **{"held": 1, "rules": 1} | options),
    )
    some = somebody(here, AGENT, its, CORNERS, 400, jax.random.key(0))
    all_of_them = everybody(here, AGENT, its, CORNERS, 50, jax.random.key(0))
    assert len(all_of_them.held) == lanes(here, AGENT, its) == 2 + its.held + its.rules
    for found in (some, all_of_them):
        assert {float(x) for x in np.unique(found.manner)} == manners
        if found.rule is not None:
            assert len(np.unique(np.asarray(found.rule).reshape(-1, 2), axis=0)) == 2
    assert 0.3 < (some.manner == 0).mean() < 0.5 and all_of_them.network.all()
    np.testing.assert_array_equal(all_of_them.held[-1], 0)  # nobody
    assert (all_of_them.manner[-1] == 1).all()
    alone = everybody(here, RESPONSE, its, CORNERS, 50, jax.random.key(0))
    assert alone.network.all() and len(alone.held) == 1


@pytest.mark.parametrize(("scope", "once"), [("episode", True), ("step", False)])
def test_an_adversary_of_an_episode_answers_once(scope, once):
    game = Probe(scope=scope, certain=True)
    rows, ending = rollouts(game, [0.0, 1.0], Opponents(jnp.ones(2, bool), jnp.zeros((1, 2, 1))))
    assert (rows.adversary[0] == rows.adversary[1]).all() == once
    assert (rows.adversary[0] == ending.adversary).all() == once


def test_the_worst_rules_stay_and_others_are_bred_from_them():
    """To push ahead, as the first rules do, helps who is at 1 and wants to be at 1.5."""
    game = Probe(horizon=40, certain=True, goal=jnp.float32(1.5))
    solver = ActorCriticSolver(TrainConfig.preset("inverted-pendulum", strength=3.0, width=8, critics=2), game)
    model, memory = Unsure(game), solver.begin(jax.random.split(jax.random.key(0)))
    found, metrics = [], {}
    for i in range(6):
        memory, metrics = respond(solver, model, everywhere(), memory, NUMBERS, jax.random.key(i))
        found.append(float(metrics["J_bred"]))
    assert found == sorted(found, reverse=True) and found[-1] <= metrics["J_held"] + 1e-3
    assert len(memory.rules) == RULES and len(np.unique(np.asarray(memory.rules).reshape(RULES, -1), axis=0)) == RULES
    assert memory.ruled == (min(found[-1], metrics["J_held"]) < metrics["J_network"])
    best = memory.rules[0] if metrics["J_bred"] < metrics["J_held"] else memory.rule
    np.testing.assert_array_equal(memory.rule, best)


@pytest.mark.parametrize(("scope", "once"), [("episode", True), ("step", False)])
def test_in_j_too(scope, once):
    """A response that shoves only where s > 0, to an agent that drives s through 0: asked once it goes on shoving."""
    game, still = Probe(scope=scope, certain=True, horizon=16), lambda obs, *_: 0 * obs
    shoves = lambda obs, action: jnp.where(obs > 0, 1.0, 0.0)  # noqa: E731
    contest = Contest(
        game, Unsure(game), lambda obs: -jnp.ones_like(obs), shoves, shoves, 0, lambda which, obs: obs, still, still,
        game.project, jnp.float32(1),
    )  # fmt: skip
    (found,) = whole_episodes(contest, [(NOBODY, DEPLOYED)], 3, jax.random.key(0))
    s, total = 1.0, 0.0
    for _ in range(16):
        total -= s**2 + EFFORT
        s = max(s - PUSH + SHOVE * (once or s > 0), -2.0)
    np.testing.assert_allclose(found, total, rtol=1e-5)


def test_a_probabilistic_mixture_executes_the_adversary_now_and_then():
    game = Probe(mix=jnp.float32(0.4), strength=jnp.float32(0.0))
    held = jnp.stack([-jnp.ones((64, 1)), jnp.ones((64, 1))])
    rows, _ = rollouts(game, [0.0] * 64, Opponents(jnp.zeros(64, bool), held))
    share = (jnp.abs(rows.obs[1, 0] - rows.obs[1, 1]) > 1e-4).mean()
    assert 0.2 < share < 0.6


def test_two_members_say_what_all_of_them_say():
    """In the mean over all pairs, and over the parts of a batch: mean and epistemic variance without bias."""
    config = TrainConfig.preset("half-cheetah", heads=4, model_width=8, width=8)
    game = make("half-cheetah").game
    model, _ = ensemble.create(config, game, jax.random.key(0))
    keys, n = jax.random.split(jax.random.key(1), 3), 8
    here = [jnp.broadcast_to(jax.random.normal(k, (1, m)), (n, m)) for k, m in zip(keys, (18, 6, 6), strict=True)]
    exact = model.predict(*here)
    pairs = [sketched(model, *here, jnp.array(pair)) for pair in itertools.permutations(range(4), 2)]
    np.testing.assert_allclose(np.mean([x.mean for x in pairs], (0, 1)), exact.mean[0], atol=1e-4)
    variance = np.mean([np.square(x.epistemic) for x in pairs], (0, 1))
    np.testing.assert_allclose(np.sqrt(variance), exact.epistemic[0], rtol=0.02, atol=1e-4)


def test_part_i_of_a_batch_goes_through_member_i():
    config = TrainConfig.preset("hopper", heads=3, model_width=8, width=8)
    game = make("hopper").game
    model, _ = ensemble.create(config, game, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 3)
    here = [jax.random.normal(k, (2, 6, m)) for k, m in zip(keys, (12, 3, 2), strict=True)]
    for shift in range(3):
        index = jnp.broadcast_to((jnp.arange(6) // 2 - shift) % 3, (2, 6))
        for found, wanted in zip(model.divided(*here, jnp.int32(shift)), model.member(*here, index), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
