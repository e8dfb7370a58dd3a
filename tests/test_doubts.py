"""Bounds that reality contradicts: said once, with the likely cause, and not of a run that is well."""

from __future__ import annotations

import warnings

import gymnasium as gym
import pytest

import rhucrl
from probes import SMALL_ROBOT, Probe, enable_cache
from rhucrl.training.doubts import PATIENCE, Doubts

enable_cache()


def row(episode, low, high, real, expected=None):
    middle = (low + high) / 2 if expected is None else expected
    return {"episode": episode, "J_pessimistic": low, "J_optimistic": high, "J_expected": middle, "return": real}


def said(rows, game=None):
    doubts = Doubts(game or rhucrl.make("pendulum").game)
    return [told for told in map(doubts.of, rows) if told]


def test_returns_inside_or_just_outside_raise_no_doubt():
    assert said([row(i, -500, -300, real) for i, real in enumerate((-400, -510, -290, -560, -270))]) == []


def test_returns_far_outside_are_told_once_after_some_patience():
    rows = [row(i, -500, -300, -1200) for i in range(8)]
    assert said(rows[: PATIENCE - 1]) == []
    (told,) = said(rows)
    assert told.startswith(
        f"episode {PATIENCE - 1}: the real return -1200 is far outside [J^(p), J^(o)] = [-500, -300]"
    )
    assert "--beta" in told
    (told,) = said([row(i, -500, -300, -50) for i in range(8)])
    assert "cannot follow" in told
    assert "reward=" not in told
    (told,) = said([row(i, -50, -30, -5) for i in range(8)], Probe(horizon=20))
    assert "check_env" in told


def test_a_good_episode_resets_the_patience():
    assert said([row(i, -500, -300, -400 if i % PATIENCE == PATIENCE - 1 else -1200) for i in range(12)]) == []


def test_an_impossible_bound_is_told_at_once():
    game = Probe(horizon=20)  # returns lie in [-81, 0]
    (told,) = said([row(0, -80, 155, -20)], game)
    assert "J_optimistic is 155" in told
    assert "-81 and 0" in told
    assert "reward_range=" in told
    assert "J_pessimistic is -737" in said([row(0, -737, -20, -20, -20)], game)[0]
    assert said([{"episode": 0, "return": 3.0}], game) == []


def test_a_run_whose_reward_is_not_the_environments_warns(tmp_path):
    """The function pays 100 a step, the environment about -5."""
    env = rhucrl.wrap(
        gym.make("Pendulum-v1", max_episode_steps=15), "none", terminated=None, reward_range=(-20, 120),
        reward=lambda obs, executed, adversary, next_obs: 100 + 0 * obs[..., 0],
    )  # fmt: skip
    with pytest.warns(UserWarning, match="check_env"):
        rhucrl.HUCRL(env, **SMALL_ROBOT).learn(PATIENCE + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rhucrl.SAC(env, width=8, batch=8).learn(PATIENCE + 1)
