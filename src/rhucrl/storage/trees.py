"""Pytrees on the disk: arrays as safetensors, the rest as JSON, and no moment at which a crash could lose them.

A saved tree is a folder with `arrays.safetensors` and `meta.json`, written beside its place, synced and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from rhucrl.errors import DiskError, UsageError

FORMAT = 1

_ARRAYS, _META = "arrays.safetensors", "meta.json"
_NEW, _OLD = "new", "old"  # `.name.new-PID`: being written; `.name.old`: being replaced

Tree = TypeVar("Tree")
Json = dict[str, Any]


class DamagedError(UsageError):
    """A file that was lost, cut or changed after it had been written."""


def save_tree(folder: str | Path, tree: Any, meta: Mapping[str, Any] | None = None) -> None:
    """Write a pytree and what is to be known about it; `folder` is at every moment the old whole or the new whole."""
    leaves, _ = _named_leaves(tree)
    arrays = safetensors.numpy.save({name: _stored(name, leaf) for name, leaf in leaves.items() if _is_array(leaf)})
    record = {
        "format": FORMAT,
        "leaves": {name: _kind(name, leaf) for name, leaf in leaves.items()},
        "scalars": {name: leaf for name, leaf in leaves.items() if _is_scalar(leaf)},
        "arrays_crc32": zlib.crc32(arrays),
        "meta": dict(meta or {}),
    }
    with explained(folder), _replacement(absolute(folder)) as fresh:
        _write(fresh / _ARRAYS, arrays)
        _write(fresh / _META, dump({"record": record, "crc32": zlib.crc32(dump(record))}, indent=1))


def load_tree(folder: str | Path, like: Tree) -> tuple[Tree, Json]:
    """The saved pytree in the form of `like`, and its meta. `like` may hold `jax.ShapeDtypeStruct`s."""
    folder = _standing(absolute(folder))
    record, data = _read_record(folder), _read(folder / _ARRAYS)
    if zlib.crc32(data) != record["arrays_crc32"]:
        raise damaged(folder / _ARRAYS)
    wanted, structure = _named_leaves(like)
    _require_same(folder, record["leaves"], {name: _kind(name, leaf) for name, leaf in wanted.items()})
    stored = safetensors.numpy.load(data) | record["scalars"]
    return structure.unflatten(_restored(leaf, stored.get(name)) for name, leaf in wanted.items()), record["meta"]


def read_meta(folder: str | Path) -> Json:
    """What was saved beside a tree, without its arrays."""
    return _read_record(_standing(absolute(folder)))["meta"]


def read_names(folder: str | Path) -> set[str]:
    """The names of the leaves of a saved tree."""
    return set(_read_record(_standing(absolute(folder)))["leaves"])


def _named_leaves(tree: Any) -> tuple[dict[str, Any], Any]:
    flat, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = {jax.tree_util.keystr(path) or ".": leaf for path, leaf in flat}
    if len(leaves) != len(flat):
        raise ValueError("two leaves of the tree have the same name")
    return leaves, structure


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _is_scalar(leaf: Any) -> bool:
    return type(leaf) in (bool, int, float, str)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kind(name: str, leaf: Any) -> str:
    """What a leaf is, in words: `float32[3,4]`, `key<fry>[]`, `int`, `code`."""
    if _is_array(leaf):
        return f"{leaf.dtype.name}[{','.join(map(str, leaf.shape))}]"
    if _is_scalar(leaf):
        return type(leaf).__name__
    if callable(leaf):
        return "code"
    raise TypeError(f"{name} is a {type(leaf).__name__}, which a run's folder cannot hold")


def _stored(name: str, leaf: Any) -> np.ndarray:
    # C order is required: safetensors writes the memory of other arrays as it lies, in the wrong order.
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name} has the type {array.dtype.name}, which a run's folder cannot hold")
    return array


def _restored(like: Any, stored: Any) -> Any:
    if not _is_array(like):
        return stored if _is_scalar(like) else like
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.array(stored), impl=_key_implementation(like))
    if isinstance(like, np.ndarray | np.generic):
        return stored if isinstance(like, np.ndarray) else stored[()]
    return jnp.array(stored)


def _key_implementation(like: Any) -> Any:
    found = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), like)
    return found[0]


def _require_same(folder: Path, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    names = [name for name in {**wanted, **saved} if saved.get(name) != wanted.get(name)]
    if names:
        found = [f"{name} is {saved.get(name, 'absent')}, expected {wanted.get(name, 'nothing')}" for name in names[:3]]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise UsageError(
            f"{folder} does not fit: {'; '.join(found)}{more}; use the settings and the version of rhucrl that wrote it"
        )


def _read_record(folder: Path) -> Json:
    try:
        sealed = json.loads(_read(folder / _META))
        record, crc32 = sealed["record"], sealed["crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(folder / _META) from error
    if zlib.crc32(dump(record)) != crc32:
        raise damaged(folder / _META)
    if record["format"] != FORMAT:
        raise UsageError(
            f"{folder} has format {record['format']}, this rhucrl reads {FORMAT}: use the one that wrote it"
        )
    return record


# Files: everything is written beside its place, synced and renamed.


def dump(value: Any, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else os.fspath(value)


def absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))


def damaged(path: Path) -> DamagedError:
    return DamagedError(
        f"{path} is damaged (missing, cut, or changed after it was written): use another copy or run again"
    )


_REMEDIES = {
    errno.EACCES: "may not be written or read: choose another folder or change its permissions",
    errno.EPERM: "may not be written or read: choose another folder or change its permissions",
    errno.EROFS: "is on a read-only file system: choose another folder",
    errno.ENOTDIR: "is no folder, or a part of its path is a file: choose another folder",
    errno.EISDIR: "is a folder, not a file: choose another name",
    errno.EEXIST: "exists and is not a folder: choose another name",
    errno.ENOENT: "does not exist or is not complete: check the path",
    errno.ENAMETOOLONG: "is too long a name: choose a shorter one",
}


@contextlib.contextmanager
def explained(path: str | Path) -> Iterator[None]:
    """Turn the system's refusals into one line with a remedy."""
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        at = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskError(f"the disk is full at {at}: make room and resume; what was there is whole") from error
        if error.errno in _REMEDIES:
            raise UsageError(f"{at} {_REMEDIES[error.errno]}") from error
        raise DiskError(f"{at}: {error.strerror or error}; check the disk and resume") from error


def _read(path: Path) -> bytes:
    if path.parent.is_dir() and not path.exists():
        raise damaged(path)
    with explained(path):
        return path.read_bytes()


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        write_all(file.fileno(), data)


def write_file(path: Path, data: bytes) -> None:
    """Write or replace one file, whole at every moment."""
    fresh = sibling(path, f"{_NEW}-{os.getpid()}")
    try:
        _write(fresh, data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    sync(path.parent)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sibling(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{suffix}")


@contextlib.contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """A fresh folder that takes `path`'s place when the block ends well."""
    fresh, old = sibling(path, f"{_NEW}-{os.getpid()}"), sibling(path, _OLD)
    if path.exists() and not set(os.listdir(path)) <= {_ARRAYS, _META}:
        raise UsageError(f"{path} exists and holds other files: choose another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        yield fresh
        sync(fresh)
        if path.exists():  # a folder cannot be renamed over another; `_standing` looks for the old one meanwhile
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        fresh.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _standing(path: Path) -> Path:
    """`path`, or what it was if a kill came between the two renames of its replacement."""
    old = sibling(path, _OLD)
    return old if old.exists() and not path.exists() else path


def is_leftover(name: str) -> bool:
    """Whether a killed save left this behind."""
    return name.startswith(".") and (f".{_NEW}-" in name or name.endswith(f".{_OLD}"))


def collect(folder: Path) -> None:
    """Finish or remove what killed saves left behind."""
    for leftover in [path for path in folder.glob(".*") if is_leftover(path.name)]:
        place = leftover.with_name(leftover.name.removeprefix(".").removesuffix(f".{_OLD}"))
        if leftover.suffix == f".{_OLD}" and not place.exists():
            leftover.rename(place)
        elif leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
