"""Saved trees come back bit for bit, and damage and misfits are named."""

from __future__ import annotations

import os
import tempfile
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

from rhucrl.errors import UsageError
from rhucrl.storage.trees import DamagedError, collect, load_tree, save_tree

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
    with pytest.raises(DamagedError, match=name):
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
    collect(tmp_path)
    assert os.listdir(tmp_path) == ["tree"]
    assert load_tree(tmp_path / "tree", state(0))[0]["count"] == 1


def test_a_folder_with_other_files_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="other files"):
        save_tree(tmp_path, state(1))
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(UsageError, match="choose another"):
        save_tree(tmp_path / "thesis.tex", state(1))
