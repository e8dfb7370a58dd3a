"""The Python interface: make, learn, predict, save, load, and attacks on what was learned."""

from __future__ import annotations

import numpy as np
import pytest

import rhucrl
from probes import enable_cache
from rhucrl.algorithms import EVERY
from rhucrl.evaluation import attack

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
    expected = {"algo": CLASSES[name], "setting": settings[-1], "horizon": 20, "seed": 3, "width": 7}
    assert {option: getattr(agent.config, option) for option in expected} == expected
    assert agent.env is env
