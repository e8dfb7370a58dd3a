"""The controllers made by hand: what they are, and what they withstand."""

import numpy as np
import pytest

import rhucrl
from rhucrl.attacks import families as adversaries
from rhucrl.attacks.arena import HostArena, gains
from rhucrl.attacks.battery import Effort
from rhucrl.attacks.reference import REFERENCES, linearised, riccati
from rhucrl.attacks.worst_case import EFFORTS, worst_case
from rhucrl.envs import make


def test_the_linearisation_is_the_simulators():
    env = make("inverted-pendulum")
    a, b = linearised(env)
    inner = env.system.simulator.env.unwrapped  # type: ignore[attr-defined]
    small = np.array([0.3, 0.002, -0.004, 0.003])
    inner.set_state(small[:2], small[2:])
    obs = env.system.step(np.array([0.01]), env.neutral).obs
    upright = np.zeros(4)
    inner.set_state(upright[:2], upright[2:])
    rest = env.system.step(np.zeros(1), env.neutral).obs
    np.testing.assert_allclose(obs - rest, a @ small + b @ [0.01], atol=1e-5)


def test_riccati_on_a_known_answer():
    """s' = s + u with unit costs: P = the golden ratio, K = P / (1 + P)."""
    one = np.ones((1, 1))
    np.testing.assert_allclose(riccati(one, one, one, one), [[(np.sqrt(5) - 1) / 2]], rtol=1e-9)


@pytest.mark.parametrize("name", REFERENCES)
def test_batches(name):
    policy, obs = REFERENCES[name](), np.random.default_rng(0).normal(size=(5, 4))
    assert policy(obs).shape == (5, 1)
    np.testing.assert_allclose(policy(obs)[2], policy(obs[2]), rtol=1e-12)


@pytest.mark.parametrize("strength", [3.0, 5.0])
def test_the_regulator_survives(strength, monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", Effort(4, 2, 1, 8, 2, (9,), 2, 1, 2))
    case = worst_case(rhucrl.lqr(), make("inverted-pendulum", "adversarial", strength))
    assert case.nominal == case.worst == 1000


def test_nobody_survives_the_papers_strength():
    env = make("inverted-pendulum", "adversarial", 10.0)
    for name in REFERENCES:
        arena = HostArena(REFERENCES[name](), env)
        falls = np.mean(gains(arena, adversaries.member(env.game, "constant", [1.0, 1.0]), [0, 1]))
        assert 5 < falls < 40
