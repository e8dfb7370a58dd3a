"""Runs of the actor-critic on a robot, very small: what they log, that they go on to the same bytes, and divergence."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import SMALL_ROBOT, enable_cache
from rhucrl.config import TrainConfig
from rhucrl.errors import SimulationError
from rhucrl.play import Episode
from rhucrl.replay import Transitions
from rhucrl.runtime.progress import SILENT
from rhucrl.storage.runs import Run
from rhucrl.training import loop as training
from rhucrl.training import protocol

enable_cache()

EPISODES = 3
PLACE: dict[str, Any] = {"env": "inverted-pendulum", "strength": 3.0, "horizon": 20, **SMALL_ROBOT}
LEARNING = {"critic_loss", "gain", "entropy", "temperature_entropy", "value"}
JUDGED = {f"J_{name}{error}" for name in ("optimistic", "expected", "pessimistic") for error in ("", "_error")}
RESPONSE = {f"response_{name}" for name in LEARNING} | {"J_network", "J_held", "J_bred", "response_rule"}


def trained(folder: Path, stop: int = EPISODES, **options) -> Path:
    """A run of as many episodes as always, left after `stop` of them: runs of one length share their programs."""
    config = TrainConfig.preset(**PLACE | {"episodes": EPISODES} | options)
    training.train(config, folder, after=lambda state, metrics: metrics["episode"] + 1 < stop)
    return folder


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("run") / "whole")


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("run") / "left", EPISODES - 1)


def test_it_logs_what_both_problems_did_and_how_sure_each_j_is(whole):
    first, *later = rows(whole)
    assert not {name for name in first if name.startswith(("J_", "agent_", "response_"))}  # random actions
    for row in later:
        assert row.keys() >= JUDGED | RESPONSE | {f"agent_{name}" for name in LEARNING} | {"J_pessimistic_output"}
        assert all(math.isfinite(x) for x in row.values()) and row["steps"] == 20
        assert row["response_rule"] == (min(row["J_held"], row["J_bred"]) < row["J_network"])
        assert all(row[f"J_{name}_error"] >= 0 for name in ("optimistic", "expected", "pessimistic"))
    assert later[0]["J_expected_error"] > 0  # the pole falls at different times


def test_where_nobody_plays_against_the_agent_nobody_responds(tmp_path):
    row = rows(trained(tmp_path / "run", 2, setting="none", strength=None))[1]
    assert row.keys() >= JUDGED | {f"agent_{name}" for name in LEARNING}
    assert not RESPONSE & row.keys()


def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(whole, left, tmp_path):
    run = Path(shutil.copytree(left, tmp_path / "run"))
    assert len(rows(run)) == EPISODES - 1
    training.resume(run)
    names = ("metrics.jsonl", f"checkpoints/{EPISODES - 1:06d}/arrays.safetensors", "policy-last/arrays.safetensors")
    for name in names:
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize("lost", ["agent", "output"])
def test_a_run_whose_networks_are_lost_ends_and_keeps_what_was_good(lost, left, tmp_path):
    folder = Path(shutil.copytree(left, tmp_path / "run"))
    run, before = Run.open(folder), (folder / "metrics.jsonl").read_bytes()
    config = training.config_of(folder, run.config)
    env = training.env_of(config)
    state: Any = training.with_room(training.last_state(folder, env.game), training.learner_of(config).initial(env))
    ruined = jax.tree.map(lambda x: x * jnp.nan, state.robust)
    networks = state.learner.agent.networks._replace(log_temperature=jnp.float32(jnp.nan))
    agent = state.learner.agent._replace(networks=networks)
    worse = {
        "agent": {"learner": state.learner._replace(agent=agent)},
        "output": {"robust": ruined},
    }
    with run, pytest.raises(SimulationError):
        training.advance(run, config, env, state._replace(**worse[lost]), EPISODES - 1, SILENT)
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert not (folder / "checkpoints" / f"{EPISODES - 1:06d}").exists()


def test_nothing_is_learned_of_what_follows_the_rail():
    """Places of the cart in three attempts of one round: what starts at the rail is lost, and nothing else."""
    config = TrainConfig.preset(**PLACE | {"horizon": 8, "episodes": 1})
    env = training.env_of(config)
    state: Any = training.learner_of(config).initial(env)
    place = np.array([0.0, 0.99, 0.99, 0.1, 0.2, 0.3, 0.0, 0.4])
    then = np.array([0.99, 0.99, 0.6, 0.2, 0.3, 0.9, 0.4, 0.99])
    obs, following = (np.stack([x, *np.zeros((3, 8))], -1).astype(np.float32) for x in (place, then))
    rows = Transitions(*map(jnp.asarray, (obs, np.zeros((8, 1), np.float32), np.zeros((8, 2), np.float32), following)))
    for count, kept in ((8, [0, 3, 4, 5, 6, 7]), (4, [0, 3])):
        episode = Episode(rows, jnp.int32(count), jnp.float32(0))
        replay, metrics = protocol.add(state.model, state.replay, episode, jnp.float32(1), jax.random.key(0))
        assert int(replay.size) == len(kept) and math.isfinite(float(metrics["one_step_error"]))
        np.testing.assert_array_equal(replay.data.obs[: len(kept), 0], place[kept].astype(np.float32))
        np.testing.assert_array_equal(replay.data.following[: len(kept), 0], then[kept].astype(np.float32))
