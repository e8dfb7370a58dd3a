"""The planner against exact dynamic programming, its memory, its place among the policies, and its budget."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rhucrl
from probes import GRID, PUSH, SMALL_ROBOT, Probe, Unsure, having, solution
from rhucrl.attacks import planning as adversaries_that_plan
from rhucrl.attacks.arena import Actor, HostArena, JaxArena, play
from rhucrl.attacks.worst_case import EFFORTS, Effort
from rhucrl.cli import main as cli
from rhucrl.envs.game import Box
from rhucrl.errors import UsageError
from rhucrl.models.known import KnownModel
from rhucrl.solvers.planner import controller as planner_module
from rhucrl.solvers.planner.search import Answering, Planning, Size, begin, pursue, rebut, respond, returns

DISCOUNT = 0.9
STATES = np.array([-1.5, -0.7, 0.5, 1.6])
TINY = Effort(2, 2, 1, 2, 1, (9,), 1, 1, 1)
SIZE = Size(12, 200, 0.2, 6)


def planning(game=None, model=None, etas=(0, 0), opponent=True, size=SIZE, **more) -> Planning:
    game = game or Probe(certain=True)
    numbers = jnp.float32(1), jnp.float32(DISCOUNT), jnp.int32(0)
    return Planning(
        game, model or KnownModel(game), *numbers, size=size, agent_eta=etas[0], response_eta=etas[1],
        opponent=opponent, **more,
    )  # fmt: skip


class Shoved(Probe):
    """By many at once."""

    adversary = property(lambda self: Box(-jnp.ones(6), jnp.ones(6)))
    neutral = property(lambda self: jnp.zeros(6))


class Table(eqx.Module):
    """A value between the points of the grid."""

    values: jax.Array

    def __call__(self, obs):
        return jnp.interp(obs[..., 0], jnp.float32(GRID), self.values)


@jax.jit
def thoughts(policy: Planning, obs):
    return jax.vmap(lambda o: policy.act(policy.fresh(), o)[0])(obs)


def actions(policy: Planning, states=STATES) -> np.ndarray:
    return np.asarray(jax.jit(lambda p, o: p(o))(policy, jnp.float32(states)[:, None]))[:, 0]


def exact(game, states=STATES, **options) -> np.ndarray:
    return np.interp(states, GRID, solution(game, DISCOUNT, **options).action)


def test_the_plan_is_the_one_of_dynamic_programming():
    game = Probe(certain=True, goal=0.4)
    far = np.array([-1.5, -0.7, 1.6])  # nearby, plans that nobody will change ask for more than feedback does
    np.testing.assert_allclose(actions(planning(game), far), exact(game, far), atol=0.2)
    alone = actions(planning(game, opponent=False))
    np.testing.assert_allclose(alone, exact(game, shoves=[0.0]), atol=0.2)


def test_the_answer_is_the_worst():
    """To an agent that does nothing: away from the goal."""
    policy, nothing = planning(), jnp.zeros((10, SIZE.horizon, 1))
    told = jax.vmap(lambda o: rebut(policy, policy.fresh(), nothing, o))(jnp.float32(STATES)[:, None])
    shoves = np.asarray(jax.vmap(Answering(policy).read)(told))[:, 0]
    np.testing.assert_allclose(shoves, np.sign(STATES), atol=0.2)


def test_optimism_and_pessimism():
    """The agent's eta moves towards the goal and lets it push less; the answer's eta moves away from it."""
    game = Probe(certain=True, strength=0.0)
    policy = planning(game, Unsure(game, epistemic=0.15), (1, -1), opponent=False)
    told = thoughts(policy, jnp.float32(STATES)[:, None])
    wanted = exact(game, reach=0.15, sign=1)
    np.testing.assert_allclose(np.asarray(told.agent[:, 0, 0]), wanted, atol=0.3)
    assert (np.sign(told.agent[:, 0, 1]) == -np.sign(STATES)).all()
    nothing = jnp.zeros((10, SIZE.horizon, 1))
    told = jax.vmap(lambda o: rebut(policy, policy.fresh(), nothing, o))(jnp.float32(STATES)[:, None])
    assert (np.sign(told.answer[:, 0, 1]) == np.sign(STATES)).all()
    assert told.rival.shape == (len(STATES), SIZE.horizon, 1)


def test_returns_are_those_of_the_game():
    game = Probe(certain=True)
    policy = planning(game)
    mine, theirs = jnp.full((1, 1, 12, 1), 0.5), jnp.full((1, 1, 12, 1), -0.25)
    s, total = 1.0, 0.0
    for t in range(12):
        total += DISCOUNT**t * (-(s**2) - 0.05 * 0.25)
        s = s + 0.3 * 0.5 - 0.2 * 0.25
        s = min(s, 2.0)
    gains = returns(policy, jnp.ones(1), mine, theirs, None, jax.random.key(0))
    assert gains.shape == (1, 1)
    assert float(gains[0, 0]) == pytest.approx(total, rel=1e-5)
    ended = dataclasses.replace(policy, game=dataclasses.replace(game, end=0.5))
    gains = returns(ended, jnp.zeros(1), mine + 0.5, 0 * theirs, None, jax.random.key(0))
    assert float(gains[0, 0]) == pytest.approx(-0.05 - DISCOUNT * (0.3**2 + 0.05), rel=1e-4)


def test_an_end_is_welcome_where_going_on_costs():
    """Rewards are negative: near the end and far from the goal it is cheaper to end; far from the end it is not."""
    game = Probe(certain=True, goal=-2.0, end=1.7, strength=0.0)
    towards, away = actions(planning(game, opponent=False), [1.5])[0], actions(planning(game), [-1.0])[0]
    assert 1.5 + PUSH * towards > 1.7 and away < -0.5


@pytest.mark.parametrize(("end", "beyond"), [(1.7, False), (np.inf, True)])
def test_an_end_is_avoided_where_going_on_pays(end, beyond):
    """The goal lies behind the end; what a state is worth at the end of a plan is lost to one that has ended before."""
    game = Probe(certain=True, goal=2.0, end=end, strength=0.0)
    policy = planning(game, opponent=False, value=Table(jnp.full(GRID.size, 100.0)))
    following = 1.5 + PUSH * actions(policy, [1.5])[0]
    assert following > 1.5 and (following > 1.7) == beyond


def test_a_value_at_the_end_of_a_plan():
    """It decides, where it says the opposite of the rewards of a plan."""
    short = planning(size=Size(2, 200, 0.2, 6), opponent=False)
    right = dataclasses.replace(short, value=Table(jnp.float32(50 * GRID)))
    assert (actions(short, [1.0])[0], actions(right, [1.0])[0]) == pytest.approx((-1, 1), abs=0.1)


def test_with_the_games_value_at_its_end_a_short_plan_is_nearly_the_best_feedback():
    """Its worst case is that of the game, and that of long plans, whose players cannot react, is not."""
    game = Probe(certain=True, goal=0.4)
    best = solution(game, DISCOUNT).value
    long, short = planning(game), planning(game, size=Size(3, 200, 0.2, 6))
    short = dataclasses.replace(short, value=Table(jnp.float32(best)))
    lost = [(best - solution(game, DISCOUNT, actions(p, GRID)[:, None]).value).mean() for p in (short, long)]
    assert lost[0] < lost[1] / 2


def test_a_planner_with_a_value_plans_less_far():
    env = rhucrl.make("pendulum", "adversarial", 0.2)
    plain, valued = (rhucrl.Planner(env, value=value).policy for value in (None, lambda obs: obs[..., 0]))
    assert (plain.size.horizon, valued.size.horizon) == (60, 3)
    assert float(plain.discount) < float(valued.discount)


def test_of_an_episodes_value_every_one_counts():
    """The agent does not know which value was chosen; the answer is chosen once."""
    game = Probe(certain=True, scope="episode")
    policy = planning(game)
    np.testing.assert_array_equal(policy.choices[:, 0], np.linspace(-1, 1, 5))
    many = planning(Shoved(certain=True, scope="episode")).choices
    assert 2 <= len(many) <= 10 and (jnp.abs(many) == 1).all(-1).sum() >= len(many) - 1
    first, _ = policy.act(policy.fresh(), jnp.ones(1))
    later, _ = policy.act(first, -jnp.ones(1))
    np.testing.assert_array_equal(first.answer, later.answer)
    np.testing.assert_allclose(first.answer, jnp.broadcast_to(first.answer[:1], first.answer.shape), atol=1e-6)
    assert abs(float(first.answer[0, 0])) > 0.5


@pytest.mark.parametrize("shove", [-1.0, 0.5])
def test_what_was_chosen_for_an_episode_is_seen_from_what_follows(shove):
    """A step later the plan is that of dynamic programming with the adversary's value, which was not told."""
    game = Probe(certain=True, scope="episode")
    policy = planning(game)
    before, _ = policy.act(policy.fresh(), jnp.float32([1.0]))
    here = game.dynamics(jnp.float32([1.0]), policy.action(before), jnp.float32([shove]))
    after, action = policy.act(before, here)
    weights = jax.nn.softmax(after.evidence)
    assert float(policy.choices[weights.argmax(), 0]) == shove and float(weights.max()) > 0.99
    assert float(action[0]) == pytest.approx(exact(game, np.asarray(here), shoves=[shove])[0], abs=0.2)


def test_memory_moves_plans_on():
    policy = planning()
    first, action = policy.act(policy.fresh(), jnp.ones(1))
    assert int(first.time) == 1 and float(action[0]) == float(policy.action(first)[0])
    state = begin(policy, first, jnp.ones(1))
    np.testing.assert_array_equal(state.agent.mean[:-1], first.agent[1:])
    np.testing.assert_array_equal(state.agent.mean[-1], first.agent[-1])


def test_predict_remembers_and_forgets():
    env = rhucrl.make("pendulum", "adversarial", strength=0.2, horizon=6)
    planner = rhucrl.Planner(env, horizon=8, samples=100, rounds=1)
    obs, _ = env.reset(seed=0)
    cold, thought = planner.predict(obs)
    warm, _ = planner.predict(obs)
    again, _ = planner.predict(obs, thought)
    np.testing.assert_array_equal(warm, again)
    planner.reset()
    np.testing.assert_array_equal(planner.predict(obs)[0], cold)
    batch, memory = planner.predict(np.stack([obs, obs]))
    assert batch.shape == (2, 1) and memory.time.shape == (2,)
    np.testing.assert_allclose(batch[0], cold, atol=1e-5)


def test_every_arena_remembers():
    """An attack meets the planner as it plays: with its memory, which does not outlive the episode."""
    env = rhucrl.make("pendulum", "adversarial", strength=0.2, horizon=6)
    planner = rhucrl.Planner(env, horizon=8, samples=100, rounds=1)
    inside, outside = JaxArena(planner.policy, env), HostArena(planner, env)
    for _ in range(2):
        ((here,),), ((there,),) = inside.play([None], [0]), outside.play([None], [0])
        assert here.gain == pytest.approx(there.gain, rel=1e-4)
    act, obs = outside.act, env.reset(seed=0)[0]
    act.reset()
    first = act(obs)
    planner.predict(np.float32([1, 0, 3]))  # a plan from elsewhere
    act.reset()
    np.testing.assert_array_equal(act(obs), first)
    act = Actor(planner, env)
    thinker = adversaries_that_plan.planner(env.game, 2, np.random.default_rng(0))
    assert play(env, act, thinker.bind(env, act), 0).steps == 6
    act.reset()
    assert act.memory is None


def test_a_planner_is_attacked(monkeypatch):
    monkeypatch.setitem(EFFORTS["jax"], "quick", TINY)
    env = rhucrl.make("pendulum", "adversarial", strength=0.3, horizon=6)
    planner = rhucrl.Planner(env, horizon=8, samples=100, rounds=1)
    found = rhucrl.worst_case(planner, env)
    assert found.worst < found.nominal
    assert not any(name.startswith("best-response") for name in found.attacks)


def test_robust_planning_pays():
    """Against the answer to its plans, an agent that reckons with it holds what one that does not loses."""

    game = rhucrl.make("pendulum", setting="action", strength=0.3).game
    robust = planning(game, size=Size())
    plain = dataclasses.replace(robust, game=game.nominal(), opponent=False)

    @jax.jit
    def gain(mine, theirs):
        def step(carry, _):
            state, memory, other = carry
            obs = game.observe(state)
            memory, action = mine.act(memory, obs)
            other = rebut(theirs, other, memory.plans, obs)
            worst = Answering(theirs).read(other)
            executed = game.execute(action, worst).action[0]
            return (game.step(state, executed, worst), memory, other), game.reward(obs, executed, worst, obs)

        start = game.reset(jax.random.key(0)), mine.fresh(), theirs.fresh()
        return jax.lax.scan(step, start, length=game.horizon)[1].sum()

    assert gain(robust, robust) > gain(plain, robust) + 150


def test_mistakes():
    env = rhucrl.make("pendulum")
    with pytest.raises(UsageError, match="at least 100"):
        rhucrl.Planner(env, samples=10)
    with pytest.raises(UsageError, match="elite"):
        rhucrl.Planner(env, elite=0.0)
    with pytest.raises(UsageError, match="rh-ucrl"):
        rhucrl.Planner(env, algo="rh-ucrll")
    with pytest.raises(UsageError, match="does not give its dynamics"):
        rhucrl.Planner(rhucrl.make("hopper"))
    with pytest.raises(UsageError, match="budget_ms"):
        rhucrl.Planner(env, budget_ms=1e-3, horizon=4, samples=100)
    with pytest.raises(UsageError, match="batch"):
        rhucrl.Planner(env, budget_ms=500.0, horizon=4, samples=100).predict(np.zeros((2, 3)))


@pytest.mark.parametrize(("budget", "expected"), [(100.0, (3, 8)), (400.0, (15, 28))])
def test_a_budget_buys_rounds(budget, expected, monkeypatch):
    """By a clock on which a round of the first phase takes 12 ms, one of the second 7, and all else nothing.

    The first phase has half of the time, the second all that is left; a twentieth of the budget is kept.
    """
    now, made = [0.0], {"_pursue": [], "_respond": []}
    monkeypatch.setattr(planner_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow(name, seconds):
        program = getattr(planner_module, name)

        def run(policy, search, first, rounds):
            now[0] += seconds * rounds
            made[name] += range(first, first + rounds)
            return program(policy, search, first, rounds)

        monkeypatch.setattr(planner_module, name, run)

    slow("_pursue", 0.012)
    slow("_respond", 0.007)
    env = rhucrl.make("pendulum")
    planner = rhucrl.Planner(env, budget_ms=budget, horizon=8, samples=100)
    made |= {"_pursue": [], "_respond": []}  # without those of its measurements
    obs, _ = env.reset(seed=0)
    action, thought = planner.predict(obs)
    assert made == {"_pursue": [*range(expected[0])], "_respond": [*range(expected[1])]}
    search = begin(planner.policy, planner.policy.fresh(), obs)
    for phase, rounds in zip((pursue, respond), expected, strict=True):
        search = jax.jit(phase)(planner.policy, search, 0, rounds)
    np.testing.assert_allclose(thought.agent, search.agent.mean, atol=1e-5)
    np.testing.assert_allclose(thought.answer, search.answer.mean, atol=1e-5)
    np.testing.assert_array_equal(action, planner.policy.action(thought))


def test_rounds_of_a_step_are_one_program():
    """The search that begins is of the same types as one under way: else a later round would be compiled anew."""
    policy = planning()
    search = begin(policy, policy.fresh(), jnp.ones(1))
    assert not any(x.weak_type for x in jax.tree.leaves(search))


def test_samples_shrink_until_a_budget_suffices(monkeypatch):
    """A round of each phase takes a quarter of a microsecond per sample, two of each one."""
    monkeypatch.setattr(rhucrl.Planner, "_paces", lambda its, _: [0.25e-6 * its.policy.size.samples] * 2)
    env = rhucrl.make("pendulum")
    size = rhucrl.Planner(env, budget_ms=0.25, horizon=4, samples=1000).policy.size
    assert 100 <= size.samples <= 220 and size.samples % 10 == 0
    assert rhucrl.Planner(env, budget_ms=2.0, horizon=4, samples=1000).policy.size.samples == 1000
    with pytest.raises(UsageError, match=r"budget_ms is 0.1; with this model a step takes at least 0.1\d* ms"):
        rhucrl.Planner(env, budget_ms=0.1, horizon=4, samples=1000)


def test_a_run_that_plans(tmp_path, capsys):
    """Train, resume, evaluate; the model of the run serves a planner, its critics do not exist."""
    options = ["--solver", "planner", "--horizon", "12", "--plan-steps", "4", "--plan-samples", "100",
               "--plan-rounds", "1", "--model-rounds", "2", "--model-width", "8"]  # fmt: skip
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    assert cli.main(["train", "pendulum", *options, "--episodes", "3", "--run-dir", whole]) == 0
    assert cli.main(["train", "pendulum", *options, "--episodes", "2", "--run-dir", parts]) == 0
    assert cli.main(["resume", parts, "--episodes", "3"]) == 0
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "parts")]
    assert lines[0] == lines[1] and '"J_pessimistic"' in lines[0]
    agent = rhucrl.load(whole)
    action, thought = agent.predict(np.float32([-1, 0, 0]))
    assert action.shape == (1,) and int(thought.time) == 1
    planner = rhucrl.Planner(agent.env, agent, horizon=4, samples=100, rounds=1)
    assert planner.policy.agent_eta == 1 and planner.predict(np.float32([-1, 0, 0]))[0].shape == (1,)
    with pytest.raises(UsageError, match="learns no critic"):
        agent.value  # noqa: B018


@pytest.mark.parametrize("name", ["pendulum", "inverted-pendulum"])
def test_a_trained_critic_ends_a_plan(name, tmp_path):
    env = rhucrl.make(name, horizon=12)
    tiny = having(SMALL_ROBOT, env=name)
    del tiny["env"]
    agent = rhucrl.RHUCRL(env, **tiny).learn(2, run_dir=tmp_path / "run")
    agent = rhucrl.load(tmp_path / "run")
    planner = rhucrl.Planner(env, agent, value=agent.value, horizon=3, samples=100, rounds=1)
    obs, _ = env.reset(seed=0)
    assert np.isfinite(agent.value(jnp.asarray(obs, jnp.float32)))
    assert env.boxes["agent"].contains(planner.predict(obs)[0].astype(np.float32))
    agent.save(tmp_path / "policy")
    with pytest.raises(UsageError, match="folder of its run"):
        rhucrl.load(tmp_path / "policy").model  # noqa: B018
