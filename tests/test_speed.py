"""Speed without a clock: arithmetic per update, compilations per run, values fetched per episode."""

from __future__ import annotations

import collections
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.array import ArrayImpl

from probes import SMALL_ROBOT
from rhucrl.cli.main import main
from rhucrl.config import TrainConfig
from rhucrl.experiments import bench
from rhucrl.runtime.timing import Clock, profile, timed
from rhucrl.training import protocol
from rhucrl.training.loop import env_of, with_room, without_room

TINY = {**SMALL_ROBOT, "episodes": 4}


@pytest.mark.slow
def test_an_update_of_both_problems_takes_less_than_five_gflops():
    _, gflop = bench.robot_update(bench.robot_sized())
    assert 4 < gflop() < 5  # where each imagined state asks two members of eight, and each start state meets four


def episodes_of(horizon, watch):
    config = TrainConfig.preset("half-cheetah", horizon=horizon, **TINY | {"updates": 20 / horizon})
    env = env_of(config)
    state, seen = protocol.ModelBased(config).initial(env), []
    for index in range(config.episodes):
        watch.clear()
        state, _ = protocol.ModelBased(config).episode(env, state, index)
        seen.append(dict(watch))
    return seen


def test_after_the_second_episode_nothing_is_compiled():
    events = collections.Counter()
    jax.monitoring.register_event_duration_secs_listener(count := lambda event, *_, **__: events.update([event]))
    try:
        seen = episodes_of(20, events)
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    programs = [sum(n for event, n in one.items() if "backend_compile" in event) for one in seen]
    assert programs[0] > 0
    assert programs[2:] == [0, 0]


def test_what_is_fetched_from_the_device_does_not_grow_with_an_episode(monkeypatch):
    fetched, value = collections.Counter(), ArrayImpl._value
    monkeypatch.setattr(ArrayImpl, "_value", property(lambda x: (fetched.update(["all"]), value.fget(x))[1]))
    short, long = (episodes_of(horizon, fetched)[3]["all"] for horizon in (20, 40))
    assert 0 < short == long < 100


def test_seconds_are_booked_where_they_were_spent():
    clock = Clock()
    assert timed("fitting", sum, range(2_000_000)) == sum(range(2_000_000))
    lap = clock.lap()
    assert 0 < lap["fitting"] <= lap["cpu"]
    assert lap["solving"] == 0
    spent = profile([{"cpu": 10.0, "compiling": 2.0, "solving": 5.0}, {"cpu": 1.0, "fitting": 0.5}])
    assert {name: x for name, x in spent.items() if x} == {"solving": 5, "fitting": 0.5, "compiling": 2, "other": 3.5}


def test_a_call_that_compiles_is_booked_as_compiling():
    clock = Clock()
    timed("solving", jax.jit(lambda x: jnp.sin(x) + 0.123), 1.0)
    lap = clock.lap()
    assert lap["compiling"] > 0 == lap["solving"]


@pytest.mark.filterwarnings("ignore:episode")  # so little is learned that the bounds are wrong
def test_a_profiled_run_says_where_its_seconds_went(tmp_path, capsys):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    run = str(tmp_path / "run")
    command = ["train", "reacher", *options, "--horizon=10", "--profile", "--run-dir", run]
    assert main(command) == 0
    spent = json.loads((tmp_path / "run" / "profile.json").read_text())
    assert "checkpointing" in capsys.readouterr().out
    assert all(spent[name] > 0 for name in ("solving", "collecting", "fitting", "checkpointing"))


@pytest.mark.parametrize(
    ("options", "told"), [(["--rounds", "0"], "--rounds is 0"), (["--output", "no/x"], "no folder")]
)
def test_a_benchmark_that_cannot_be_made_is_refused_first(options, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *options]) == 2
    assert told in capsys.readouterr().err


def test_a_checkpoint_leaves_out_room_that_is_empty_and_gets_it_back():
    config = TrainConfig.preset("half-cheetah", horizon=10, **TINY)
    env = env_of(config)
    state = protocol.ModelBased(config).initial(env)
    state = state._replace(replay=bench.filled(state.replay, env.game, 20, jax.random.key(0)))
    small = without_room(state, 20)
    assert (small.replay.capacity, state.replay.capacity) == (20, 40)
    jax.tree.map(np.testing.assert_array_equal, with_room(small, state).replay, state.replay)
