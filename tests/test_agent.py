"""The Python interface: make, learn, predict, save, load, and attacks on what was learned."""

from __future__ import annotations

import numpy as np
import pytest

import rhucrl
from probes import enable_cache
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
    result = rhucrl.worst_case(learned[0], env)
    assert result.worst <= result.attacks["constant"] < 0
    assert result.nominal < 0
    assert result.adversary is not None


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


@pytest.mark.parametrize("name", ["RHUCRL", "HUCRL", "BestResponse", "MaxiMinMB", "Greedy"])
def test_every_row_of_the_table_is_a_class(env, name):
    assert getattr(rhucrl, name)(env, seed=3).config.seed == 3
