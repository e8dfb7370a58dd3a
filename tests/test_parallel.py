"""The adapter for PettingZoo, on every robot and setting."""

import numpy as np
import pytest

from rhucrl.envs import NAMES, make

pytest.importorskip("pettingzoo")
from pettingzoo.test import parallel_api_test, parallel_seed_test

from rhucrl.envs.pettingzoo import ParallelView

SETTINGS = [{"setting": name} for name in ("none", "adversarial", "action", "parameter")]
SETTINGS += [{"setting": "action", "mixture": "probabilistic"}]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_pettingzoo_accepts_all(name, options):
    parallel_api_test(ParallelView(make(name, **options, horizon=10)), num_cycles=15)
    parallel_seed_test(lambda: ParallelView(make(name, **options, horizon=10)), num_cycles=5)


def test_rewards_sum_to_zero_and_both_players_end():
    view = ParallelView(make("hopper", "adversarial", horizon=3))
    seen, _ = view.reset(seed=0)
    np.testing.assert_array_equal(seen["agent"], seen["adversary"])
    for _ in range(3):
        assert view.agents == ["agent", "adversary"]
        _, rewards, terminated, truncated, _ = view.step({"agent": np.zeros(3), "adversary": np.ones(2)})
        assert rewards["agent"] == -rewards["adversary"] != 0
    assert truncated == {"agent": True, "adversary": True} and not any(terminated.values())
    assert view.agents == []


def test_the_first_action_of_an_episodes_adversary_holds():
    view, env = ParallelView(make("swimmer", "parameter")), make("swimmer", "parameter")
    view.reset(seed=0)
    env.reset(seed=0, options={"adversary": np.array([0.6], np.float32)})
    for value in (0.6, 1.4):
        seen, *_ = view.step({"agent": np.ones(2), "adversary": np.array([value], np.float32)})
        expected, *_ = env.step({"agent": np.ones(2), "adversary": env.neutral})
    np.testing.assert_array_equal(seen["agent"], expected)
