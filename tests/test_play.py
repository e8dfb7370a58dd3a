"""The one loop on the host: who is asked, and when."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from rhucrl.envs import make
from rhucrl.play import HostPlayers, play_on_host, steps

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
        players = HostPlayers(*(uniform(env.boxes[who]) for who in ("agent", "adversary")))
        assert int(play_on_host(env, lambda: players, jax.random.key(0)).count) == HORIZON
        draws[setting] = count[0]
    assert draws == {"adversarial": 2 * HORIZON, "parameter": HORIZON + 1}
