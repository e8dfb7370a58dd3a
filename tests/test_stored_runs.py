"""Runs that are on somebody's disk: this version reads them, or says in one line which version does.

`fixtures/make.py` wrote them.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rhucrl
from probes import enable_cache
from rhucrl.errors import UsageError
from rhucrl.storage.runs import Run
from rhucrl.storage.trees import read_meta, save_tree
from rhucrl.training import loop as training

enable_cache()

FIXTURES = Path(__file__).parent / "fixtures"
ROUNDING = 1e-3  # of the range of an action: ten times what the stored observations allow
READ = ""
WRITER = "use the settings and the version of rhucrl that wrote it"
POLICIES = {
    "look-ahead": READ, "gp": READ, "actor-critic": READ, "planner": READ, "sac": READ, "ppo": READ,
    "first-actor-critic": READ, "earlier-actor-critic": READ, "held-actor-critic": READ, "earlier-look-ahead": READ,
}  # fmt: skip
"""What becomes of each policy: READ, or what its refusal says of the version that reads it."""
RUNS = POLICIES | {name: WRITER for name in POLICIES if name.startswith(("first", "earlier", "held"))}
"""What becomes of each run that is to go on."""


def attempt(refusal: str, read: Callable[[], Any]) -> Any:
    """What is read; where it is to be refused, nothing, and the refusal is one line."""
    if refusal == READ:
        return read()
    with pytest.raises(UsageError, match=refusal) as refused:
        read()
    assert "\n" not in str(refused.value)
    return None


@pytest.fixture
def run(request, tmp_path) -> Path:
    """A copy: reading may leave a lock behind."""
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / request.param))


def each(outcomes: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("run", "refusal"), outcomes.items(), indirect=["run"], ids=outcomes)


def test_there_is_a_line_for_every_stored_run():
    assert {path.parent.name for path in FIXTURES.glob("*/config.json")} == {*RUNS}


def test_they_are_small_and_hold_arrays_and_json():
    files = [path for path in FIXTURES.glob("*/**/*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json", ".jsonl"}
    assert sum(path.stat().st_size for path in files) < 600_000


@each(POLICIES)
def test_the_policy_does_what_it_did(run, refusal):
    agent, expected = attempt(refusal, lambda: rhucrl.load(run)), json.loads((run / "expected.json").read_text())
    if agent is not None:
        actions, _ = agent.predict(np.asarray(expected["observations"], np.float32), deterministic=True)
        low, high = (np.asarray(x) for x in agent.game.agent)
        np.testing.assert_allclose(actions, expected["actions"], rtol=0, atol=ROUNDING * (high - low).min())


def test_a_policy_of_the_first_actor_critic_can_be_saved_and_its_adversary_plays(tmp_path):
    """Its adversary was a network alone, which no held action stands in for."""
    agent, obs = rhucrl.load(FIXTURES / "first-actor-critic"), np.array([0.1, -0.05, 0.3, 1.0], np.float32)
    agent.save(tmp_path / "policy")
    again = rhucrl.load(tmp_path / "policy")
    np.testing.assert_array_equal(again.predict(obs, deterministic=True)[0], agent.predict(obs, deterministic=True)[0])
    np.testing.assert_array_equal(again.adversary(obs, 0), agent.adversary(obs, 0))
    assert np.abs(again.adversary(obs, 0)).max() > 0


@each(RUNS)
@pytest.mark.slow
def test_the_run_goes_on(run, refusal):
    before = (run / "metrics.jsonl").read_bytes()
    state = attempt(refusal, lambda: training.resume(run, more=1))
    if state is None:
        assert (run / "metrics.jsonl").read_bytes() == before
        return
    rows = Run.open(run).metrics()
    assert (run / "metrics.jsonl").read_bytes().startswith(before)
    assert [row["episode"] for row in rows] == [0, 1, 2]
    assert all(math.isfinite(x) for x in rows[-1].values() if isinstance(x, float))


def test_adversaries_do_what_they_did(tmp_path):
    attack = Path(shutil.copytree(FIXTURES / "attack", tmp_path / "attack"))
    expected = json.loads((attack / "expected.json").read_text())["actions"]
    sequence = rhucrl.load_adversary(attack / "sequence")
    acts = [np.asarray(sequence(jnp.zeros(3), jnp.int32(time))) for time in range(10)]
    np.testing.assert_allclose(acts, expected, rtol=1e-5)
    planning: Any = rhucrl.load_adversary(attack / "planning")
    assert (planning.depth, planning.hold, planning.actions.shape) == (4, 1, (9, 2))


def test_the_adversary_of_training_is_that_of_the_run():
    agent, obs = rhucrl.load(FIXTURES / "earlier-look-ahead" / "policy"), jnp.array([-1.0, 0.0, 1.0])
    trained: Any = rhucrl.load_adversary(FIXTURES / "attack" / "trained")
    np.testing.assert_array_equal(trained(obs, 0), agent.adversary(obs, 0))


def test_a_state_that_no_version_has_is_refused_in_one_line(tmp_path):
    """What `attempt` asks of a refusal can be had."""
    policy = Path(shutil.copytree(FIXTURES / "ppo" / "policy", tmp_path / "policy"))
    save_tree(policy, {"weights": np.zeros(3)}, read_meta(policy))
    assert attempt("the version of rhucrl that wrote it", lambda: rhucrl.load(policy)) is None
