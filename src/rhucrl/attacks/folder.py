"""An attack's folder: every adversary that was found, what it did, and where an interrupted attack goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rhucrl.attacks.families import AbstractFound
from rhucrl.attacks.worst_case import AttackFinding, load_adversary
from rhucrl.errors import UsageError
from rhucrl.storage.trees import dump, explained, write_file

RECORD = "attack.json"


def folder_of(policy: str, words: Iterable[Any]) -> Path:
    """Where an attack on a policy is kept: attacks/ in its run's folder, or in this one under the policy's name."""
    path = Path(policy)
    inside = (path / "config.json").exists()
    named = [*([] if inside else [path.stem]), *(str(word) for word in words if word is not None)]
    return (path if inside else Path()) / "attacks" / re.sub(r"[^\w.]+", "-", "-".join(named))


class Folder:
    """`attack.json` says what was attacked and the findings; beside it lie the adversaries, by their attacks' names."""

    def __init__(self, path: Path, task: dict[str, Any]):
        self.path, self.record = path, {"task": task, "findings": {}}
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            if (path / RECORD).exists():
                self.record = json.loads((path / RECORD).read_bytes())
        for name, value in task.items():
            if self.record["task"].get(name) != value:
                other = f"{path} holds an attack with another {name} ({self.record['task'].get(name)!r}, not {value!r})"
                raise UsageError(f"{other}: remove it, or choose another folder with --save")

    def get(self, name: str) -> AttackFinding | None:
        row = self.record["findings"].get(name)
        if row is None or not (self.path / name).is_dir():
            return None
        return AttackFinding(load_adversary(self.path / name), tuple(row["returns"]), row["steps"], row["cpu"])

    def put(self, name: str, finding: AttackFinding) -> None:
        if isinstance(finding.adversary, AbstractFound):
            finding.adversary.save(self.path / name)
        row = {"returns": finding.returns, "steps": finding.steps, "cpu": round(finding.cpu, 2)}
        self.record["findings"][name] = row
        with explained(self.path):
            write_file(self.path / RECORD, dump(self.record, indent=1))
