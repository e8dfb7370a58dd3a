"""Runs with a Gaussian process: every algorithm, both solvers, the theory's ledger, and a game whose value is known."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import GRID, SMALL_ROBOT, Probe, enable_cache, having, solution
from rhucrl.algorithms import ALGORITHMS
from rhucrl.cli.main import main
from rhucrl.config import TrainConfig
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.training import loop as training
from rhucrl.training import protocol
from test_protocol import TINY, play

enable_cache()

GP = SMALL_ROBOT | TINY | {"model": "gp", "points": 48, "oracle": -10.0}
CASES = {
    "rh-ucrl": {"beta": "theory", "kernel_fit": False, "ridge": "theory"},
    "best-response": {"algo": "best-response", "kernel": "sum"},
    "maximin-mb": {"algo": "maximin-mb", "setting": "action", "mixture": "probabilistic"},
    "h-ucrl": {"algo": "h-ucrl", "kernel": "product"},
    "greedy": {"algo": "greedy", "kernel": "linear"},
    "actor-critic": {"solver": "actor-critic", "lipschitz": (1.0, 0.5, 2.0, 2.0, 3.0)},
}
LEDGER = {
    "beta", "information_gain", "information_bound", "log10_Gamma", "log10_Gamma_bound", "log10_regret_bound",
    "log10_episodes_needed", "lipschitz_dynamics", "lipschitz_deviation", "lipschitz_agent", "lipschitz_adversary",
    "lipschitz_reward", "points", "ridge",
}  # fmt: skip


@functools.cache
def run(case: str):
    return play(TrainConfig.preset(**having(GP, **CASES[case], model="gp")), 4)


def test_the_cases_are_all_algorithms_and_both_solvers():
    assert set(ALGORITHMS) <= set(CASES) and "actor-critic" in CASES


@pytest.mark.parametrize("case", CASES)
def test_an_episode_is_learned_and_written_down(case):
    told = run(case)
    for metrics in told.metrics:
        assert metrics.keys() >= LEDGER and all(math.isfinite(x) for x in metrics.values()), metrics
        assert metrics["information_gain"] <= metrics["information_bound"]
        assert metrics["log10_Gamma"] <= metrics["log10_Gamma_bound"]
    assert "regret" not in told.metrics[0]  # random actions
    missed = sum(-10.0 - metrics["return"] for metrics in told.metrics[1:])
    assert told.metrics[-1]["regret"] == pytest.approx(missed, rel=1e-4)
    assert told.metrics[-1]["points"] <= 48 < int(told.states[-1].replay.size)


def test_constants_that_are_given_are_used_and_others_estimated():
    given, found = run("actor-critic").metrics[-1], run("rh-ucrl").metrics[-1]
    assert [given[f"lipschitz_{name}"] for name in ("dynamics", "agent", "reward")] == [1.0, 2.0, 3.0]
    assert found["lipschitz_dynamics"] > 0.5


def test_beta_of_the_theory_widens_what_is_hallucinated():
    told = run("rh-ucrl")
    widths = [float(state.model.temperature) for state in told.states]
    assert widths == sorted(widths) and widths[0] > 1  # B_f is 1
    assert told.metrics[2]["beta"] == pytest.approx(widths[1])
    rows = told.rows(3)
    wide = told.states[-1].model.predict(*rows[:3]).epistemic
    plain = told.states[-1].model.signal * told.states[-1].model.at(told.game.model_input(*rows[:3]))[1][:, None]
    np.testing.assert_allclose(wide, widths[-1] * plain, rtol=1e-5)


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_numbers_and_its_policy_is_loaded(tmp_path):
    options = having(GP, **CASES["best-response"], model="gp")
    training.train(TrainConfig.preset(**options), tmp_path / "whole")
    training.train(TrainConfig.preset(**options | {"episodes": 2}), tmp_path / "part")
    training.resume(tmp_path / "part", episodes=4)
    whole, part = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "part"))
    assert whole == part
    from rhucrl.training.agent import load

    action, _ = load(tmp_path / "whole").predict(np.array([-1.0, 0.0, 0.0]))
    assert action.shape == (1,)
    assert main(["theory", "plot", str(tmp_path / "whole")]) == 0 and (tmp_path / "whole" / "theory.png").stat().st_size


@pytest.mark.slow
def test_rh_ucrl_with_a_linear_kernel_plays_the_probe_as_if_it_knew_its_dynamics():
    game, discount, told = Probe(certain=True), 0.95, {}
    env = ZeroSumEnv(game)
    for model in ("known", "gp"):
        config = TrainConfig.preset(
            model=model, discount=discount, episodes=6, updates=20.0, pool=256, acting_points=17,
            **({"kernel": "linear", "points": 16} if model == "gp" else {}),
        )  # fmt: skip
        state = protocol.ModelBased(protocol.programs(config)).fresh(game, 6 * game.horizon, jax.random.key(0))
        for index in range(config.episodes):
            state, metrics = protocol.ModelBased(config).episode(env, state, index)
        actions = np.asarray(state.last.policy(jnp.asarray(GRID[:, None], jnp.float32)))
        told[model] = solution(game, discount, actions=actions).at(1.0), metrics
    metrics = told["gp"][1]
    assert metrics["points"] == 4 and metrics["one_step_error"] < 0.05  # it is clipped at the edges
    assert told["gp"][0] >= 1.05 * told["known"][0]  # costs: no more than 5 % above
    assert solution(game, discount, actions=np.zeros(1)).at(1.0) < 2 * told["known"][0]  # doing nothing is far from it


@pytest.mark.slow
def test_a_small_robot_is_learned_from_what_has_been_seen_of_it():
    small = having(SMALL_ROBOT, env="inverted-pendulum", model="gp") | {"horizon": 40, "episodes": 3, "points": 40}
    config = TrainConfig.preset(**small)
    told = play(config, 3)
    errors = [metrics["one_step_error"] for metrics in told.metrics]
    assert errors[2] < errors[0] and all(math.isfinite(x) for x in told.metrics[-1].values())


def test_a_large_robot_is_refused_before_a_folder_is_made(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "half-cheetah", "--model", "gp", "--run-dir", str(folder)]) == 2
    assert "use --model ensemble" in capsys.readouterr().err
    assert not folder.exists()
