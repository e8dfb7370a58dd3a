"""A run's folder: configuration, metrics, checkpoints and policies, each of them whole after any crash.

    config.json      everything the run was asked for, the versions it ran with, a format number
    metrics.jsonl    one line per episode: exact, the same bytes in a run that was stopped and one that was not
    timing.jsonl     one line per episode of what never repeats: seconds
    checkpoints/     the complete training state after an episode; the last two
    policy/          the output policy; policy-last/ is the last one
    tensorboard/     the metrics once more, if this folder is there (`ask_for_tensorboard`)
    lock             held by the one process that may write

Why a run killed at any moment resumes to the same bytes. At the end of episode k the writer
 1. appends row k to the metrics and syncs it, and saves the policies;
 2. writes checkpoint k into a temporary folder, syncs it, and renames it into place.
The rename is the moment at which episode k has happened. A kill before it leaves checkpoint k-1 and perhaps
row k, or a torn part of it: resume truncates the metrics to k-1 and plays k again from the same state.
A kill after it leaves row k and checkpoint k. The other order could leave checkpoint k without row k, which
nothing would ever write again.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import rhucrl
from rhucrl.config import TrainConfig
from rhucrl.errors import UsageError
from rhucrl.storage import trees
from rhucrl.storage.trees import FORMAT, DamagedError, Json, absolute, dump, explained, load_tree, read_meta, save_tree

RECORDED = ("jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "mujoco")
KEPT = 2  # checkpoints: the older one is for the day on which the newer one is damaged

_CONFIG, _METRICS, _TIMING, _LOCK, _BOARD = "config.json", "metrics.jsonl", "timing.jsonl", "lock", "tensorboard"

Tree = TypeVar("Tree")


def versions() -> dict[str, str]:
    """The versions on which a run's numbers depend."""

    def version(name: str) -> str:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
        return "absent"

    own = {"rhucrl": rhucrl.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in RECORDED}


def _record(config: Any, versions: dict[str, str]) -> bytes:
    values = config.tree() if isinstance(config, TrainConfig) else dict(config)
    return dump({"format": FORMAT, "versions": versions, "config": values}, indent=1)


class Run:
    """A run's folder. Reading needs no lock; everything that writes happens inside `with run:`."""

    def __init__(self, folder: Path, record: Json, lock: BinaryIO | None = None):
        self.folder = folder
        self.config: Json = record["config"]
        self.versions: dict[str, str] = record["versions"]
        self._lock = lock
        self._board: Any = None

    @classmethod
    def create(cls, folder: str | Path, config: TrainConfig | Json) -> Run:
        """A new run, already locked. `config` may be its tree."""
        folder = absolute(folder)
        text = _record(config, versions())
        with explained(folder):
            _require_vacant(folder)
            folder.mkdir(parents=True, exist_ok=True)
            lock = _acquire(folder)
            try:
                _require_vacant(folder)
                trees.collect(folder)
                for name in (_METRICS, _TIMING):
                    (folder / name).touch()
                trees.write_file(folder / _CONFIG, text)
            except BaseException:
                lock.close()
                raise
        return cls(folder, json.loads(text), lock)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run, not yet locked."""
        folder = absolute(folder)
        path = folder / _CONFIG
        if not path.exists():
            raise UsageError(f"{folder} holds no run (no {_CONFIG}): check the path")
        with explained(folder):
            text = path.read_bytes()
        try:
            record = json.loads(text)
            form, version, _ = record["format"], record["versions"]["rhucrl"], record["config"]
        except (ValueError, KeyError, TypeError) as error:
            raise trees.damaged(path) from error
        if form != FORMAT or version.split(".")[0] != versions()["rhucrl"].split(".")[0]:
            raise UsageError(
                f"{folder} was written by rhucrl {version} (format {form}), this is {versions()['rhucrl']} "
                f"(format {FORMAT}): use that version or start a new run"
            )
        return cls(folder, record)

    def __enter__(self) -> Run:
        with explained(self.folder):
            self._lock = self._lock or _acquire(self.folder)
            try:
                trees.collect(self.folder)
                trees.collect(self.folder / "checkpoints")
                self._keep_rows(lambda row: True)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock back."""
        if self._board is not None:
            self._board.close()
        if self._lock is not None:
            self._lock.close()
        self._lock = self._board = None

    def changed_versions(self) -> dict[str, tuple[str, str]]:
        """Packages that were (first) and are (second) of different versions: numbers may differ in the last bits."""
        now = versions()
        return {name: (was, now[name]) for name, was in self.versions.items() if name in now and now[name] != was}

    def reconfigure(self, config: Any) -> None:
        """Replace the configuration, in order to prolong the run; the versions stay those that it began with."""
        self._require_lock()
        text = _record(config, self.versions)
        with explained(self.folder):
            trees.write_file(self.folder / _CONFIG, text)
        self.config = json.loads(text)["config"]

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One episode's row, on the disk when this returns. It has its number under `episode`."""
        line = self._append(_METRICS, row)
        if (self.folder / _BOARD).is_dir():
            self._show(json.loads(line))

    def append_timing(self, row: Mapping[str, Any]) -> None:
        """How long an episode took."""
        self._append(_TIMING, row)

    def metrics(self) -> list[Json]:
        """All rows; a last line that a kill tore is no row."""
        return [row for _, row in self._rows(_METRICS)]

    def timing(self) -> list[Json]:
        """All rows of seconds. A kill may have lost some of them."""
        return [row for _, row in self._rows(_TIMING)]

    def truncate_metrics(self, episode: int) -> None:
        """Drop the rows after `episode`: they will be played again."""
        self._require_lock()
        self._keep_rows(lambda row: row["episode"] <= episode)

    def save_checkpoint(self, episode: int, tree: Any, meta: Mapping[str, Any] | None = None) -> None:
        """The complete state after `episode`, whose metrics are already written (see the top of this file)."""
        self._require_lock()
        save_tree(self.folder / "checkpoints" / f"{episode:06d}", tree, meta)
        kept = [number for number, _ in self._checkpoints() if number <= episode][-KEPT:]
        for number, folder in self._checkpoints():
            if number not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def load_checkpoint(self, like: Tree | Callable[[Json], Tree]) -> tuple[int, Tree, Json] | None:
        """The newest whole checkpoint: its episode, tree and meta; None if there was none yet.

        `like` may be a function of the meta, where sizes depend on what was saved.
        """
        damage: DamagedError | None = None
        for episode, folder in reversed(self._checkpoints()):
            try:
                form: Any = like(read_meta(folder)) if isinstance(like, types.FunctionType) else like
                tree, meta = load_tree(folder, form)
            except DamagedError as error:
                damage = error
                continue
            if damage:
                warnings.warn(f"{damage}. Continuing from episode {episode}, which is whole.", stacklevel=2)
            return episode, tree, meta
        if damage:
            raise UsageError(f"{self.folder} has no whole checkpoint ({damage}): start again in another folder")
        return None

    def save_policy(self, tree: Any, meta: Mapping[str, Any] | None = None, name: str = "policy") -> None:
        """The output policy, or with the name `policy-last` the last one."""
        self._require_lock()
        save_tree(self.folder / name, tree, meta)

    def _checkpoints(self) -> list[tuple[int, Path]]:
        folders = (self.folder / "checkpoints").glob("[0-9]*")
        return sorted((int(folder.name), folder) for folder in folders if folder.name.isdigit())

    def _append(self, name: str, row: Mapping[str, Any]) -> bytes:
        self._require_lock()
        line = dump({"episode": int(row["episode"]), **row}) + b"\n"
        with explained(self.folder / name), open(self.folder / name, "ab", buffering=0) as file:
            end = os.fstat(file.fileno()).st_size
            try:
                trees.write_all(file.fileno(), line)
            except BaseException:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise
        return line

    def _rows(self, name: str) -> Iterator[tuple[int, Json]]:
        """Every whole row and the place of its end in the file."""
        end, path = 0, self.folder / name
        with explained(path):
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for line in lines:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            try:
                yield end, json.loads(line)
            except ValueError as error:
                raise trees.damaged(path) from error

    def _keep_rows(self, keep: Callable[[Json], bool]) -> None:
        for name in (_METRICS, _TIMING):
            end = max((end for end, row in self._rows(name) if keep(row)), default=0)
            with explained(self.folder / name), open(self.folder / name, "ab", buffering=0) as file:
                file.truncate(end)
                os.fsync(file.fileno())

    def _require_lock(self) -> None:
        if self._lock is None:
            raise RuntimeError("a run is written inside `with run:` only")

    def _show(self, row: Json) -> None:
        with explained(self.folder / _BOARD):
            if self._board is None:
                from tensorboardX import SummaryWriter

                self._board = SummaryWriter(str(self.folder / _BOARD), purge_step=row["episode"])
            for name, value in row.items():
                if type(value) in (int, float) and name != "episode":
                    self._board.add_scalar(name, value, row["episode"])
            self._board.flush()


def ask_for_tensorboard(folder: str | Path, begun: bool = False) -> None:
    """Have the run that will be created in `folder`, or has `begun` there, write TensorBoard's files too."""
    with explained(folder):
        if not begun:
            _require_vacant(absolute(folder))
        (absolute(folder) / _BOARD).mkdir(parents=True, exist_ok=True)


def _require_vacant(folder: Path) -> None:
    names = sorted(os.listdir(folder)) if folder.exists() else []
    if _CONFIG in names:
        raise UsageError(
            f"{folder} already holds a run: `rhucrl resume {folder}` continues it, --run-dir names another"
        )
    ours = (_LOCK, _METRICS, _TIMING, _BOARD)
    strangers = [name for name in names if name not in ours and not trees.is_leftover(name)]
    if strangers:
        raise UsageError(f"{folder} is not empty ({strangers[0]}): choose another folder")


def _acquire(folder: Path) -> BinaryIO:
    """The folder's lock, which the system gives back when the process ends in whatever way."""
    lock = open(folder / _LOCK, "a+b", buffering=0)  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = lock.read(20).decode(errors="replace").strip()
        lock.close()
        raise UsageError(f"{folder} is in use by process {owner or '?'}: wait for it, or stop it and resume") from error
    with contextlib.suppress(OSError):  # the number is only a courtesy, a full disk may refuse it
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
    return lock  # type: ignore[return-value]
