"""The Python interface: make, learn, predict, save, load, and attacks on what was learned."""

from __future__ import annotations

import io
import json
import sys
import types

import numpy as np
import pytest

import rhucrl
from probes import enable_cache
from rhucrl.algorithms import EVERY
from rhucrl.attacks import worst_case as attack

enable_cache()

TINY = {
    "pool": 16, "updates": 0.5, "batch": 8, "width": 8, "features": 8, "model_width": 8, "model_rounds": 1,
    "model_steps": 2, "acting_points": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def env():
    return rhucrl.make("pendulum", setting="adversarial", strength=0.2, horizon=20)


@pytest.fixture(scope="module")
def learned(env, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "pendulum"
    return rhucrl.RHUCRL(env, seed=0, **TINY).learn(episodes=2, run_dir=folder), folder


@pytest.fixture(scope="module")
def observations(env):
    return np.asarray(env.game.observe(np.random.default_rng(0).uniform(-3, 3, (50, 2)).astype(np.float32)))


def test_predict_takes_one_observation_or_many(env, learned, observations):
    agent, _ = learned
    one, state = agent.predict(env.reset(seed=0)[0])
    many, _ = agent.predict(observations)
    assert state is None
    assert (type(one), one.shape, many.shape) == (np.ndarray, (1,), (50, 1))
    assert all(env.boxes["agent"].contains(action) for action in [one, *many])
    assert np.ptp(many) > 0
    env.step({"agent": one, "adversary": env.neutral})


def test_save_and_load_keep_every_action(learned, observations, tmp_path):
    agent, folder = learned
    agent.save(tmp_path / "pendulum.policy")
    expected = agent.predict(observations)[0]
    for path in (tmp_path / "pendulum.policy", folder, folder / "policy"):
        again = rhucrl.load(path)
        np.testing.assert_array_equal(again.predict(observations)[0], expected)
        assert (again.config, float(again.game.strength)) == (agent.config, pytest.approx(0.2))


def test_worst_case_attacks_an_agent_in_its_env(env, learned, monkeypatch):
    small = attack.Effort(4, 2, 1, 4, 1, (4,), 1, 1, 1, grids=(20,), strays=2)
    monkeypatch.setitem(attack.EFFORTS["jax"], "quick", small)
    agent = learned[0]
    result = rhucrl.worst_case(agent, env)
    assert result.worst == result.attacks[result.attack] == min(result.attacks.values())
    assert result.worst < result.nominal  # an extreme that is held harms this agent already

    def earned(env, adversary):
        obs, _ = env.reset(seed=0)
        total, time, over = 0.0, 0, False
        while not over:
            action, _ = agent.predict(obs)
            obs, reward, _, over, _ = env.step({"agent": action, "adversary": adversary(obs, time)})
            total, time = total + reward, time + 1
        return total

    assert result.nominal == pytest.approx(earned(env.at(0.0), lambda obs, time: env.neutral), rel=1e-4)
    assert result.worst == pytest.approx(earned(env, result.adversary), rel=1e-4)
    held = {name: earned(env, found.adversary) for name, found in result.findings.items()}
    assert held == pytest.approx(result.attacks, rel=1e-4)


def test_an_agent_that_has_not_learned_says_so(env, tmp_path):
    agent = rhucrl.RHUCRL(env)
    for ask in (lambda: agent.predict(np.zeros(3)), lambda: agent.save(tmp_path / "x"), lambda: agent.policy):
        with pytest.raises(rhucrl.UsageError, match="learn"):
            ask()
    assert not (tmp_path / "x").exists()


def test_mistakes_are_told(env, tmp_path):
    with pytest.raises(rhucrl.UsageError, match="rh-ucrl"):
        rhucrl.Agent(env, "rhucrl")
    with pytest.raises(rhucrl.UsageError, match="did you mean 'width'"):
        rhucrl.RHUCRL(env, widht=7)
    with pytest.raises(rhucrl.UsageError, match="pendulum"):
        rhucrl.make("pendulun")
    with pytest.raises(rhucrl.UsageError):
        rhucrl.load(tmp_path)


CLASSES = {
    "RHUCRL": "rh-ucrl", "HUCRL": "h-ucrl", "BestResponse": "best-response", "MaxiMinMB": "maximin-mb",
    "Greedy": "greedy", "MaxiMinMF": "maximin-mf", "ARDDPG": "ar-ddpg", "RARL": "rarl", "RAP": "rap", "EPOpt": "ep-opt",
    "DomainRandomization": "domain-randomization", "SAC": "sac", "PPO": "ppo",
}  # fmt: skip


def test_every_row_of_the_table_is_a_class():
    assert sorted(CLASSES.values()) == sorted(EVERY)
    public = [name for name in rhucrl.__all__ if isinstance(getattr(rhucrl, name), type)]
    assert {name for name in public if issubclass(getattr(rhucrl, name), rhucrl.Agent)} == {*CLASSES, "Agent"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_learns_by_its_row(name):
    """In its env, with its seed and options."""
    settings = getattr(EVERY[CLASSES[name]], "settings", ("adversarial",))
    env = rhucrl.make("pendulum", setting=settings[-1], horizon=20)
    agent = getattr(rhucrl, name)(env, seed=3, width=7)
    expected = {"algo": CLASSES[name], "setting": settings[-1], "horizon": 20, "seed": 3}
    assert {option: getattr(agent.config, option) for option in expected} == expected
    assert agent.config.solver.width == 7
    assert agent.env is env


def test_learning_again_goes_on_and_gives_what_one_call_would_have_given(env, tmp_path):
    once = rhucrl.RHUCRL(env, seed=1, **TINY).learn(3, run_dir=tmp_path / "once")
    twice = rhucrl.RHUCRL(env, seed=1, **TINY).learn(1, run_dir=tmp_path / "twice").learn(2)
    loaded = rhucrl.RHUCRL(env, seed=1, **TINY).learn(1, run_dir=tmp_path / "loaded")
    loaded = rhucrl.load(tmp_path / "loaded").learn(2)
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("once", "twice", "loaded")]
    assert rows[0] == rows[1] == rows[2]
    assert [agent.episodes for agent in (once, twice, loaded)] == [3, 3, 3]
    seen: list[dict] = []
    memory = rhucrl.RHUCRL(env, seed=1, **TINY).learn(2, callback=seen.append).learn(1, callback=seen.append)
    assert [json.loads(row) for row in rows[0].splitlines()] == json.loads(json.dumps(seen))
    assert memory.episodes == 3


def test_learning_on_is_refused_where_it_would_start_anew(env, learned, tmp_path):
    agent, folder = learned
    agent.save(tmp_path / "policy")
    with pytest.raises(rhucrl.UsageError, match="folder of its run"):
        rhucrl.load(tmp_path / "policy").learn(1)
    with pytest.raises(rhucrl.UsageError, match="leave run_dir out"):
        rhucrl.load(folder).learn(1, run_dir=tmp_path / "other")
    with pytest.raises(rhucrl.UsageError, match="at least 1"):
        rhucrl.RHUCRL(env).learn(0)
    with pytest.raises(rhucrl.UsageError, match="already holds a run"):
        rhucrl.RHUCRL(env, **TINY).learn(1, run_dir=folder)


def test_a_stopped_run_is_resumed_from_python(env, tmp_path):
    def stop(metrics):
        raise KeyboardInterrupt

    agent = rhucrl.SAC(env, seed=2, width=8, batch=8)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(3, run_dir=tmp_path / "run", callback=stop)
    assert rhucrl.Agent.resume(tmp_path / "run").episodes == 3
    whole = rhucrl.SAC(env, seed=2, width=8, batch=8).learn(3, run_dir=tmp_path / "whole")
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()
    assert rhucrl.load(tmp_path / "run").pair.policy.box == whole.pair.policy.box


def test_a_callback_ends_learning(env):
    agent = rhucrl.PPO(env, width=8).learn(5, callback=lambda metrics: metrics["episode"] < 1)
    assert agent.episodes == 2
    assert agent.learn(1).episodes == 3


@pytest.mark.parametrize(
    ("options", "terminal", "told"),
    [
        ({}, True, True), ({}, False, False), ({"progress": False}, True, False), ({"verbose": 0}, True, False),
        ({"verbose": 1}, False, True), ({"progress": True}, False, True),
    ],
)  # fmt: skip
def test_learning_tells_how_it_goes(env, options, terminal, told, monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return terminal

    monkeypatch.setattr(sys, "stderr", screen := Screen())
    rhucrl.PPO(env, width=8).learn(1, **options)
    assert ("ppo pendulum" in screen.getvalue()) is told


def test_a_notebook_is_told_too(env, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    rhucrl.PPO(env, width=8).learn(1)
    assert "ppo pendulum  1/1" in capsys.readouterr().err


def test_without_a_folder_a_diverged_run_ends_as_well(env, monkeypatch):
    from rhucrl.model_free import on_policy

    def lost(learner, env, state, index):
        return state, {"episode": index, "return": float("nan"), "steps": 1, "output_episode": index}

    monkeypatch.setattr(on_policy.OnPolicyLearner, "episode", lost)
    with pytest.raises(rhucrl.SimulationError, match="diverged in episode 0"):
        rhucrl.PPO(env, width=8).learn(1)


def test_an_agent_says_what_it_is(env, learned):
    assert repr(rhucrl.HUCRL(env, seed=4)) == "HUCRL(pendulum, adversarial 0.2, seed 4: not learned yet)"
    agent, folder = learned
    assert repr(agent) == f"RHUCRL(pendulum, adversarial 0.2, seed 0: 2 episodes, run in {folder})"
    assert repr(rhucrl.load(folder)) == repr(agent)


@pytest.mark.parametrize(
    ("observation", "told"),
    [
        (np.zeros(4), r"shape \(4,\); this policy sees \(3,\)"), (np.zeros(2), "shape"), (np.zeros((2, 2, 3)), "shape"),
        ([0, np.nan, 1], "not finite"), ([[0, 1, 2], [np.inf, 0, 0]], "not finite"), ("abc", "no observation"),
        (3.0, "shape"),
    ],
)  # fmt: skip
def test_what_is_no_observation_is_told(learned, env, observation, told):
    for policy in (learned[0], rhucrl.Planner(env, horizon=2, samples=100, rounds=1)):
        with pytest.raises(rhucrl.UsageError, match=told):
            policy.predict(observation)


def test_deterministic_means_the_mode_and_the_default_is_drawn(env):
    agent, obs = rhucrl.SAC(env, width=8).learn(1), np.tile(np.float32([0.6, 0.8, 1.0]), (500, 1))
    mode = agent.predict(obs, deterministic=True)[0]
    drawn = agent.predict(obs)[0]
    assert np.ptp(mode) == 0
    assert np.ptp(drawn) > 0.1
    assert abs(np.arctanh(np.clip(drawn / 2, -0.999, 0.999)).mean() - np.arctanh(mode[0] / 2)) < 0.3
    agent.set_random_seed(7)
    first = agent.predict(obs)[0]
    agent.set_random_seed(7)
    np.testing.assert_array_equal(agent.predict(obs)[0], first)


def test_an_episode_that_starts_forgets_the_plan(env):
    planner = rhucrl.Planner(env, horizon=4, samples=100, rounds=2)
    obs = np.stack([env.reset(seed=0)[0], np.float32([0.0, 1.0, 0.5])])
    fresh, thought = planner.predict(obs, episode_start=np.ones(2, bool))
    for _ in range(3):
        old, thought = planner.predict(obs, thought, episode_start=np.zeros(2, bool))
    new, _ = planner.predict(obs, thought, episode_start=np.array([True, False]))
    kept, _ = planner.predict(obs, thought, episode_start=np.zeros(2, bool))
    np.testing.assert_array_equal(new[0], fresh[0])
    np.testing.assert_array_equal(new[1], kept[1])
    assert (kept[0] != fresh[0]).any()
    assert thought.time.tolist() == [4, 4]
    one, alone = planner.predict(obs[0], episode_start=True)
    assert (one.shape, int(alone.time)) == ((1,), 1)
    assert old.shape == (2, 1)


def test_one_action_for_two_players_is_told(env):
    env.reset(seed=0)
    for action in (np.zeros(1), {"agent": np.zeros(1)}, 0.0):
        with pytest.raises(rhucrl.UsageError, match=r"AgentView\(env\)"):
            env.step(action)
    view = rhucrl.AgentView(env)
    view.reset(seed=0)
    view.step(np.zeros(1, np.float32))
