"""The one loop on the host: who is asked, and when."""

from __future__ import annotations

import functools
import itertools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rhucrl.envs import make
from rhucrl.envs.wrap import wrap
from rhucrl.networks.policies import AbstractPolicy, Nobody
from rhucrl.play import HostPlayers, acting, play_on_host, steps

HORIZON = 6


@pytest.mark.parametrize(("setting", "asked"), [("adversarial", HORIZON), ("parameter", 1)])
def test_an_adversary_of_an_episode_is_asked_once_and_the_agent_once_per_step(setting, asked):
    env = make("pendulum", setting, horizon=HORIZON)
    seen: dict[str, list] = {"agent": [], "adversary": []}
    value = 0.9 * env.boxes["adversary"].high

    def acting(who, action):
        return lambda obs: seen[who].append(obs) or action

    path = list(steps(env, acting("agent", np.ones(1)), acting("adversary", value), 0))
    assert len(seen["agent"]) == len(path) == HORIZON and len(seen["adversary"]) == asked
    np.testing.assert_array_equal(seen["adversary"][0], path[0].obs)
    np.testing.assert_allclose([step.adversary for step in path], [value] * HORIZON, rtol=1e-6)


def test_players_of_an_episode_share_one_generator():
    """Two draws a step where both act, one where the adversary has chosen: none is drawn for nothing."""
    draws = {}
    for setting in ("adversarial", "parameter"):
        count = [0]

        def uniform(box, count=count):
            def act(obs, generator):
                count[0] += 1
                return generator.uniform(box.low, box.high)

            return act

        env = make("pendulum", setting, horizon=HORIZON)
        begin = functools.partial(HostPlayers, *(uniform(env.boxes[who]) for who in ("agent", "adversary")))
        assert int(play_on_host(env, begin, jax.random.key(0)).count) == HORIZON
        draws[setting] = count[0]
    assert draws == {"adversarial": 2 * HORIZON, "parameter": HORIZON + 1}


class Countdown(gym.Env):
    """Every step pays what has been survived so far; the action says whether this is the last one."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = np.array([0.0, self.np_random.uniform()])
        return self.now.copy(), {}

    def step(self, action):
        self.now = self.now + np.array([1.0, 0.0])
        return self.now.copy(), self.now[0], bool(action[0] > 0), False, {}


def lasting(*lengths: int):
    """What begins an attempt of so many steps each, one after the other; an adversary that does nothing."""
    ends = itertools.chain(lengths, itertools.repeat(10**6))

    def begin() -> HostPlayers:
        left = itertools.count(next(ends) - 1, -1)
        act = lambda obs, generator: np.ones(1) if next(left) == 0 else -np.ones(1)  # noqa: E731
        return HostPlayers(act, lambda obs, generator: np.zeros(1))

    return begin


def earned(steps: int) -> float:
    return steps * (steps + 1) / 2


@pytest.mark.parametrize(
    ("lengths", "attempts", "expected"),
    [
        ((3, 4), 3, [earned(3), earned(4)]),  # the third attempt is cut after three of its steps
        ((3, 7), 2, [earned(3), earned(7)]),  # the last one ends in the last step
        ((9, 1), 2, [earned(9), earned(1)]),
        ((), 1, [earned(10)]),  # none has ended: what was earned until the cut is all there is
        ((20,), 1, [earned(10)]),
    ],
)
def test_a_round_has_as_many_steps_as_the_horizon_and_begins_again_after_an_end(lengths, attempts, expected):
    env = wrap(Countdown(), "none", horizon=10, terminated=None)
    round_ = play_on_host(env, lasting(*lengths), jax.random.key(0))
    rows = round_.transitions
    assert int(round_.count) == len(rows.obs) == 10
    assert float(round_.earned) == pytest.approx(np.mean(expected))
    begun = np.asarray(rows.obs[:, 0]) == 0
    assert begun.sum() == attempts
    np.testing.assert_array_equal(rows.obs[1:][~begun[1:]], rows.following[:-1][~begun[1:]])
    assert len(np.unique(rows.obs[begun, 1])) == attempts  # each attempt has a start of its own


def test_a_key_decides_a_round_of_several_attempts():
    env = make("hopper", horizon=60)
    one, same, other = (play_on_host(env, None, jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    assert not np.array_equal(one.transitions.obs, other.transitions.obs)
    over = np.asarray(env.game.terminated(one.transitions.following))
    assert over.sum() > 0  # it falls and begins anew
    fell = np.flatnonzero(over[:-1])
    jumps = np.abs(np.asarray(one.transitions.obs[1:] - one.transitions.following[:-1])).max(-1) > 0
    np.testing.assert_array_equal(np.flatnonzero(jumps), fell)


class Counting(AbstractPolicy):
    """A policy that remembers how often it has acted, and ends an attempt with its fourth action."""

    def __call__(self, obs):
        return -jnp.ones((*obs.shape[:-1], 1))

    def fresh(self):
        return jnp.int32(0)

    def act(self, memory, obs):
        return memory + 1, jnp.where(memory == 3, 1.0, -1.0)[None]


def test_a_memory_begins_anew_with_every_attempt():
    env = wrap(Countdown(), "none", horizon=10, terminated=None)
    players = functools.partial(acting, Counting(), Nobody(env.game.neutral))
    rows = play_on_host(env, players, jax.random.key(0)).transitions
    np.testing.assert_array_equal(rows.obs[:, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
