"""A run's folder survives kills, damage, full disks, read-only folders and second processes."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import equinox as eqx
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from rhucrl import runs, trees
from rhucrl.errors import DiskError, UsageError
from rhucrl.runs import Run, load_tree, read_meta, save_tree

CONFIG = {"env": "pendulum", "episodes": 3}
Pair = namedtuple("Pair", "first second")


def same(a, b) -> bool:
    """Equal structures with bitwise equal leaves of equal kinds."""
    (left, structure), (right, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    return structure == other and all(map(same_leaf, left, right))


def same_leaf(a, b) -> bool:
    if not hasattr(a, "dtype"):
        return type(a) is type(b) and (a == b or a != a)
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def state(episode: int) -> dict:
    return {"weights": np.full((40, 50), episode, np.float32), "count": episode, "log": np.arange(5) < episode}


# Trees.

DTYPES = st.sampled_from(["bool", "int8", "int32", "int64", "uint8", "uint32", "float16", "float32", "float64"])
LEAVES = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.none(),
    arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    arrays.arrays("float32", (3, 2)).map(np.asfortranarray),
    arrays.arrays("int32", 6).map(lambda array: array[::2]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(tree=TREES)
@settings(max_examples=60, deadline=None)
def test_a_tree_comes_back_as_it_was(tree):
    with tempfile.TemporaryDirectory() as folder:
        save_tree(Path(folder) / "tree", tree, {"note": [1, 2.5, None]})
        loaded, meta = load_tree(Path(folder) / "tree", tree)
    assert same(loaded, tree)
    assert meta == {"note": [1, 2.5, None]}


def test_modules_and_keys_come_back_also_from_their_shapes_alone(tmp_path):
    def make(seed):
        key = jax.random.key(seed)
        return {
            "net": eqx.nn.MLP(3, 2, 8, 2, key=key),
            "key": jax.random.split(key, 3),
            "old": jax.random.PRNGKey(seed),
        }

    save_tree(tmp_path / "tree", make(1))
    for like in (make(2), eqx.filter_eval_shape(make, 2)):
        loaded, _ = load_tree(tmp_path / "tree", like)
        assert same(eqx.filter(loaded, eqx.is_array), eqx.filter(make(1), eqx.is_array))
        assert loaded["net"].activation is like["net"].activation
        assert jnp.array_equal(jax.random.normal(loaded["key"][0]), jax.random.normal(make(1)["key"][0]))


@pytest.mark.parametrize(
    ("like", "told"),
    [
        ({"a": np.zeros((2, 3)), "b": 1}, r"\['a'\] is float64\[2,2\], expected float64\[2,3\]"),
        ({"a": np.zeros((2, 2), np.float32), "b": 1}, r"float64\[2,2\], expected float32\[2,2\]"),
        ({"a": np.zeros((2, 2)), "b": 1.0}, r"\['b'\] is int, expected float"),
        ({"a": np.zeros((2, 2))}, r"\['b'\] is int, expected nothing"),
        ({"a": np.zeros((2, 2)), "b": 1, "c": 2}, r"\['c'\] is absent, expected int"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, like, told):
    save_tree(tmp_path / "tree", {"a": np.zeros((2, 2)), "b": 1})
    with pytest.raises(UsageError, match=told):
        load_tree(tmp_path / "tree", like)


def test_what_cannot_be_stored_is_refused_when_saving(tmp_path):
    for leaf in (object(), np.zeros(2, complex), jnp.zeros(2, jnp.bfloat16), b"bytes"):
        with pytest.raises(TypeError, match="cannot hold"):
            save_tree(tmp_path / "tree", {"leaf": leaf})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["arrays.safetensors", "meta.json"])
@pytest.mark.parametrize("harm", ["cut", "empty", "flip", "lose"])
def test_damage_is_noticed(tmp_path, name, harm):
    save_tree(tmp_path / "tree", state(3), {"x": 1})
    damage(tmp_path / "tree" / name, harm)
    with pytest.raises(runs.DamagedError, match=name):
        load_tree(tmp_path / "tree", state(3))


def damage(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "lose":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-7], "empty": b"", "flip": data}[harm])


@pytest.mark.parametrize("renames", [0, 1])
def test_a_replacement_that_stops_anywhere_leaves_the_old_tree(tmp_path, monkeypatch, renames):
    save_tree(tmp_path / "tree", state(1))
    rename, done = Path.rename, []

    def stopping(path, target):
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", stopping)
    with pytest.raises(KeyboardInterrupt):
        save_tree(tmp_path / "tree", state(2))
    monkeypatch.undo()
    assert (tmp_path / "tree").exists() == (renames == 0)
    assert load_tree(tmp_path / "tree", state(0))[0]["count"] == 1
    trees.collect(tmp_path)
    assert os.listdir(tmp_path) == ["tree"]
    assert load_tree(tmp_path / "tree", state(0))[0]["count"] == 1


def test_a_folder_with_other_files_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="other files"):
        save_tree(tmp_path, state(1))
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(UsageError, match="choose another"):
        save_tree(tmp_path / "thesis.tex", state(1))


# Runs.


def play(run: Run, first: int, last: int) -> None:
    for episode in range(first, last + 1):
        run.append_metrics({"episode": episode, "return": np.float32(episode) / 3})
        run.save_checkpoint(episode, state(episode), {"rng": [episode]})


def test_a_run_keeps_its_configuration_metrics_and_two_checkpoints(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Config:
        env: str = "pendulum"
        strength: float | None = None

    with Run.create(tmp_path / "run", Config()) as run:
        assert run.load_checkpoint(state(0)) is None
        play(run, 1, 5)
        run.save_policy(state(5), {"return": jnp.float32(2)})
        run.save_policy(state(4), name="policy-last")
    run = Run.open(tmp_path / "run")
    assert run.config == {"env": "pendulum", "strength": None}
    assert {"python", "rhucrl", "jax", "numpy", "equinox", "mujoco"} <= set(run.versions)
    assert run.changed_versions() == {}
    assert [row["episode"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert sorted(os.listdir(tmp_path / "run" / "checkpoints")) == ["000004", "000005"]
    episode, tree, meta = run.load_checkpoint(state(5))
    assert (episode, tree["count"], meta) == (5, 5, {"rng": [5]})
    assert read_meta(tmp_path / "run" / "policy") == {"return": 2.0}
    with pytest.raises(RuntimeError, match="with run"):
        run.append_metrics({"episode": 6})


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 4)
    whole = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    damage(tmp_path / "run" / "checkpoints" / "000004" / "arrays.safetensors", "cut")
    with Run.open(tmp_path / "run") as run:
        with pytest.warns(UserWarning, match=r"000004.*damaged.*Continuing from episode 3"):
            episode, tree, _ = run.load_checkpoint(state(0))
        assert (episode, tree["count"]) == (3, 3)
        run.truncate_metrics(3)
        play(run, 4, 4)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == whole
    assert Run.open(tmp_path / "run").load_checkpoint(state(4))[0] == 4
    for name in ("000003", "000004"):
        damage(tmp_path / "run" / "checkpoints" / name / "meta.json", "lose")
    with pytest.raises(UsageError, match="no whole checkpoint"):
        Run.open(tmp_path / "run").load_checkpoint(state(4))


def test_a_torn_row_is_no_row(tmp_path):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 2)
    path = tmp_path / "run" / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"episode": 3, "ret')
    assert len(Run.open(path.parent).metrics()) == 2
    with Run.open(path.parent):
        assert path.read_bytes() == whole


def test_a_second_process_is_refused(tmp_path):
    code = "import sys; from rhucrl.runs import Run\nwith Run.open(sys.argv[1]): pass"
    with Run.create(tmp_path / "run", CONFIG):
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"), Run.open(tmp_path / "run"):
            pass
        other = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True)
        assert "in use by process" in other.stderr
    with Run.open(tmp_path / "run"):
        pass


def test_an_existing_run_or_other_files_are_never_taken_over(tmp_path):
    Run.create(tmp_path / "run", CONFIG).close()
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(UsageError, match="rhucrl resume"):
        Run.create(tmp_path / "run", {"env": "other"})
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(UsageError, match="not empty"):
        Run.create(tmp_path / "mine", CONFIG)
    assert os.listdir(tmp_path / "mine") == ["letter.txt"]


@pytest.mark.parametrize("change", [{"format": 99}, {"versions": {"rhucrl": "99.1.0"}}])
def test_a_run_of_another_version_is_refused(tmp_path, change):
    Run.create(tmp_path / "run", CONFIG).close()
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError, match="use that version or start a new run"):
        Run.open(tmp_path / "run")


def test_a_folder_without_a_run_or_with_a_cut_configuration_is_named(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        Run.open(tmp_path / "nowhere")
    Run.create(tmp_path / "run", CONFIG).close()
    damage(tmp_path / "run" / "config.json", "cut")
    with pytest.raises(UsageError, match=r"config\.json is damaged"):
        Run.open(tmp_path / "run")


@contextlib.contextmanager
def read_only(folder: Path):
    """A folder that this process may not write, also if it is root's (who then acts as nobody)."""
    mode, root = folder.stat().st_mode, os.geteuid() == 0
    folder.chmod(0o555)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(mode)


def test_a_read_only_folder_is_a_mistake_with_a_remedy(tmp_path):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Run.create(folder / "run", CONFIG).close()
        folder.chmod(0o755)
        with read_only(folder):
            with pytest.raises(UsageError, match=r"may not be written.*choose another folder"):
                Run.create(folder / "new", CONFIG)
            with pytest.raises(UsageError, match="may not be written"):
                save_tree(folder / "policy", state(1))
            assert Run.open(folder / "run").metrics() == []
        with read_only(folder / "run"), pytest.raises(UsageError, match="may not be written"):
            Run.create(folder / "run" / "inner", CONFIG)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="part of its path is a file"):
        Run.create(tmp_path / "file" / "run", CONFIG)


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "fsync", "mkdir"])
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, call):
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 2)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        monkeypatch.setattr(os, call, full_disk)
        with pytest.raises(DiskError, match=r"disk is full.*make room"):
            run.save_checkpoint(3, state(3))
        if call != "mkdir":
            with pytest.raises(DiskError, match=r"disk is full"):
                run.append_metrics({"episode": 3})
        monkeypatch.undo()
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        play(run, 3, 3)
    assert len(Run.open(tmp_path / "run").metrics()) == 3


def test_tensorboard_is_written_when_asked(tmp_path):
    runs.ask_for_tensorboard(tmp_path / "run")
    with Run.create(tmp_path / "run", CONFIG) as run:
        play(run, 1, 2)
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    with pytest.raises(UsageError, match="already holds a run"):
        runs.ask_for_tensorboard(tmp_path / "run")


# Kills. One process imports everything once and forks the victims, before JAX has started a thread.

VICTIM = """
import os, signal, sys, time
import numpy as np
from rhucrl.runs import Run

EPISODES = 40

def step(x):
    return (x * 6364136223846793005 + 1442695040888963407) % 2**61

def victim(folder):
    like = {"x": 0, "w": np.zeros((300, 200), np.int64)}
    with (Run.open(folder) if os.path.exists(folder + "/config.json") else Run.create(folder, {})) as run:
        episode, tree, _ = run.load_checkpoint(like) or (0, like, {})
        run.truncate_metrics(episode)
        for episode in range(episode + 1, EPISODES + 1):
            assert (tree["w"] == tree["x"]).all()
            x = step(tree["x"] + episode)
            tree = {"x": x, "w": np.full((300, 200), x)}
            run.append_metrics({"episode": episode, "x": x})
            run.save_policy(tree, {"episode": episode})
            run.save_checkpoint(episode, tree)

for line in sys.stdin:
    folder, patience = line.split()
    child = os.fork()
    if child == 0:
        try:
            victim(folder)
        except BaseException:
            import traceback; traceback.print_exc(); os._exit(1)
        os._exit(0)
    if patience != "forever":
        time.sleep(float(patience))
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_run_killed_at_any_moment_resumes_to_the_same_bytes(tmp_path):
    random, codes = np.random.default_rng(0), []
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forker:

        def launch(folder: Path, patience: float | str) -> int:
            print(folder, patience, file=forker.stdin, flush=True)
            return int(forker.stdout.readline())

        start = time.monotonic()
        assert launch(tmp_path / "whole", "forever") == 0
        duration = time.monotonic() - start
        for attempt in range(30):
            folder = tmp_path / f"killed-{attempt % 3}"
            codes.append(launch(folder, random.uniform(0, duration / 5)))
            assert codes[-1] in (0, -signal.SIGKILL)
        for folder in tmp_path.glob("killed-*"):
            assert launch(folder, "forever") == 0
        forker.stdin.close()
    assert codes.count(-signal.SIGKILL) >= 20
    for folder in tmp_path.glob("killed-*"):
        assert contents(folder) == contents(tmp_path / "whole")


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which holds the number of the process."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "lock"}
