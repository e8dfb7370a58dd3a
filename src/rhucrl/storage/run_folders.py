"""Runs by their folders: all of them below a folder, how far each is, and which of their options differ."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rhucrl.config import TrainConfig, flat
from rhucrl.errors import UsageError

RECORD = "config.json"  # by which a run is known
LEVELS = 3  # folders below the given one that are looked into: runs/EXPERIMENT/ALGO/seed-0

Key = TypeVar("Key")


class StoredRun(NamedTuple):
    """A run on the disk: its options, and the episodes that its last checkpoint has seen."""

    folder: Path
    config: dict[str, Any]
    done: int

    @property
    def episodes(self) -> int:
        return self.config["episodes"]

    @property
    def progress(self) -> str:
        return f"{self.done} of {self.episodes} episodes"

    def is_finished(self, episodes: int | None = None) -> bool:
        """Whether there is nothing to do, up to its own number of episodes or a larger one."""
        return self.done >= (episodes or self.episodes) and (self.folder / "policy").is_dir()


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run, otherwise the runs below it; seed-2 comes before seed-10."""
    if found := _search(folder, LEVELS):
        return found
    where = f"there is no {RECORD} in it or up to {LEVELS} folders below" if folder.is_dir() else "it is no folder"
    raise UsageError(f"{folder} holds no run ({where}): check the path")


def _search(folder: Path, levels: int) -> list[Path]:
    if (folder / RECORD).is_file():
        return [folder]  # what lies inside a run (attacks, checkpoints) is no run
    if not levels:
        return []
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:  # not ours to read
        return []
    return [run for name in sorted(names, key=natural) for run in _search(folder / name, levels - 1)]


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which numbers are in their order: seed-2, seed-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def stored_run(folder: Path) -> StoredRun:
    from rhucrl.storage.runs import Run

    config = Run.open(folder).config
    names = os.listdir(folder / "checkpoints") if (folder / "checkpoints").is_dir() else []
    done = max((int(name) for name in names if name.isascii() and name.isdecimal()), default=-1) + 1
    return StoredRun(folder, config, done)


def same_run(folder: Path, config: TrainConfig) -> StoredRun | None:
    """The run in a folder, which has to be the one that `config` asks for; None if there is no run."""
    if not (folder / RECORD).is_file():
        return None
    run, asked = stored_run(folder), json.loads(json.dumps(flat(config.tree())))  # JSON knows no tuples
    there = json.loads(json.dumps(flat(TrainConfig.of_tree(run.config).tree())))
    for name in dict.fromkeys([*asked, *there]):
        now, before = asked.get(name), there.get(name)
        if now != before:
            option = "--" + name.replace("_", "-")
            remedy = "choose another --run-dir"
            if name == "episodes" and now > before:
                remedy += f", or prolong it: rhucrl resume {folder} --episodes {now}"
            raise UsageError(f"{folder} holds a run with {option} {before}, not {now}: {remedy}")
    return run


def left_to_do(runs: Mapping[Key, StoredRun | None], episodes: int | None = None) -> list[Key]:
    """Those that are not finished, or have not begun (None); of the others it is said."""
    finished = {key: run for key, run in runs.items() if run and run.is_finished(episodes)}
    for run in finished.values():
        more = f"`rhucrl resume {run.folder} --episodes N` prolongs it"
        print(f"{run.folder} is finished, {run.progress}: {more}", flush=True)
    return [key for key in runs if key not in finished]


def names_of(runs: Sequence[Path], below: Path) -> list[str]:
    """Short names of runs: their paths below a folder."""
    return [str(run.relative_to(below)) if run != below else run.name or str(run) for run in runs]


def groups_of(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The places of configurations that differ in nothing but the seed, by a label of how they differ."""
    configs, alike = [flat(config) for config in configs], {}
    for i, config in enumerate(configs):
        alike.setdefault(_identity(config), []).append(i)
    firsts = [configs[places[0]] for places in alike.values()]
    telling: list[str] = []
    for name in dict.fromkeys(name for config in firsts for name in config if name != "seed"):
        if _count(firsts, [*telling, name]) > _count(firsts, telling):
            telling.append(name)
    labels = [", ".join(f"{name} {config.get(name)}" for name in telling) for config in firsts]
    return dict(zip(labels, alike.values(), strict=True))


def _identity(config: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in config.items() if name != "seed"}, sort_keys=True, default=str)


def _count(configs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({_identity({name: config.get(name) for name in names}) for config in configs})
