"""What `rhucrl evaluate` does: judge every run, and tell the numbers of each and the means over seeds."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rhucrl.attacks.folder import Folder, folder_of
from rhucrl.attacks.foreign import fingerprint
from rhucrl.attacks.paper import ATTACKS, EPISODES, average, has_adversary, paper_worst_case
from rhucrl.attacks.worst_case import Shelf, WorstCase, rounds, worst_case
from rhucrl.cli.attack import Evaluate, mean_of
from rhucrl.cli.mistakes import demand_least
from rhucrl.errors import UsageError
from rhucrl.runtime.progress import Progress
from rhucrl.runtime.tables import print_table
from rhucrl.statistics import estimate
from rhucrl.storage.run_folders import RECORD, find_runs, groups_of, names_of, stored_run
from rhucrl.storage.trees import dump, explained, read_meta, write_file


class PolicyFolder(NamedTuple):
    """A policy that is to be judged: a run's, or a saved one."""

    name: str
    folder: Path
    config: Mapping[str, Any]


class Judged(NamedTuple):
    """A policy's returns without an adversary and in the worst case, and against the adversary that it learned with."""

    policy: PolicyFolder
    case: WorstCase
    average: tuple[float, ...]

    def columns(self, protocol: str) -> dict[str, tuple[float, ...]]:
        """The returns of each column of the table."""
        both = {name: self.case.findings[attack].returns for name, attack in ATTACKS.items()
                if attack in self.case.findings} if protocol == "paper" else {}  # fmt: skip
        return {"nominal": self.case.calm, "average": self.average, "worst case": self.case.returns, **both}

    def record(self) -> dict[str, Any]:
        attacks = {name: found.returns for name, found in self.case.findings.items()}
        return {"run": str(self.policy.folder), "config": self.policy.config, "nominal": self.case.calm,
                "average": self.average, "attacks": attacks, "worst": self.case.worst,
                "attack": self.case.attack}  # fmt: skip


def evaluate(command: Evaluate) -> int:
    command = _completed(command)
    if command.json is not None:  # before hours pass
        with explained(command.json):
            command.json.parent.mkdir(parents=True, exist_ok=True)
    policies = _policies(command.runs)
    judged = [_judge(command, one, f"{i} of {len(policies)}") for i, one in enumerate(policies, start=1)]
    groups = groups_of([one.policy.config for one in judged])
    title = " ".join(map(str, command.runs))
    means = []
    for label, places in groups.items():
        group = [judged[i] for i in places]
        means.append({"label": label, "runs": [str(one.policy.folder) for one in group], **_means(command, group)})
        _show(command, label or title, group, means[-1])
    print(_legend(command))
    if command.json is not None:
        runs = [one.record() for one in judged]
        with explained(command.json):
            write_file(command.json, dump({**_asked(command), "runs": runs, "means": means}, 1))
    return 0


def _completed(command: Evaluate) -> Evaluate:
    """With the budget or the number of episodes that its protocol has by default."""
    paper = command.protocol == "paper"
    if not command.runs:
        raise UsageError("evaluate needs a RUN: name a run's folder, or a folder of runs")
    if paper and command.budget is not None:
        raise UsageError("--budget belongs to --protocol battery: --attack-episodes is for the paper's")
    if not paper and command.attack_episodes is not None:
        raise UsageError("--attack-episodes belongs to --protocol paper: --budget is for the battery")
    if command.json is not None and command.json.is_dir():
        raise UsageError(f"--json {command.json} is a folder: name a file in it")
    demand_least(command, episodes=1, attack_episodes=1)
    if paper:
        return dataclasses.replace(command, attack_episodes=command.attack_episodes or EPISODES)
    return dataclasses.replace(command, budget=command.budget or "quick")


def _asked(command: Evaluate) -> dict[str, Any]:
    return {name: getattr(command, name) for name in ("protocol", "budget", "attack_episodes", "seed", "episodes")}


def _policies(given: Sequence[Path]) -> list[PolicyFolder]:
    """Every policy that there is to judge, each once; of runs without one, and of unfinished ones, it is said."""
    found: dict[Path, PolicyFolder] = {}
    for path in given:
        if (path / "meta.json").is_file() and not (path / RECORD).is_file():
            found[path.resolve()] = PolicyFolder(path.name, path, read_meta(path).get("config", {}))
            continue
        folders = find_runs(path)
        for folder, name in zip(folders, names_of(folders, path), strict=True):
            run, name = stored_run(folder), name if len(given) == 1 else str(folder)
            if not (folder / "policy").is_dir():
                print(f"warning: {folder} has no policy yet ({run.progress}): it is left out", file=sys.stderr)
                continue
            name += "" if run.done >= run.episodes else f" ({run.progress})"
            found[folder.resolve()] = PolicyFolder(name, folder, run.config)
    if not found:
        raise UsageError("no run here has a policy yet: wait for its first episode, or `rhucrl resume` it")
    return list(found.values())


def _judge(command: Evaluate, policy: PolicyFolder, place: str) -> Judged:
    agent, env = command.meet(policy.folder)
    seed, episodes, shelf = command.seed, command.episodes, _shelf(command, policy, env)
    paper = command.protocol == "paper" or not has_adversary(env.game)  # which nobody needs to attack
    budget: Any = command.budget
    total = command.attack_episodes or 1 if paper else rounds(agent, env, budget)
    with Progress(total + 1, f"evaluate {policy.folder} ({place})") as progress:
        if paper:
            case = paper_worst_case(agent, env, total, episodes, seed, progress, shelf)
        else:
            case = worst_case(agent, env, budget, seed, progress, shelf, episodes=episodes)
        progress.update(total, "against the adversary it learned with")
        learned = average(agent, env, episodes, seed)
        progress.update(total + 1, f"worst case {case.worst:.1f}")
    return Judged(policy, case, learned)


def _shelf(command: Evaluate, policy: PolicyFolder, env: Any) -> Shelf | None:
    """Where an interrupted evaluation goes on: in the run's folder. What takes seconds leaves no traces there.

    The policy's fingerprint is a part of the name: when a run has gone on, its policy is judged anew.
    """
    if command.budget == "quick" or not has_adversary(env.game):
        return None
    mark, task = fingerprint(str(policy.folder)) or 0, {**_asked(command), "budget_ms": command.budget_ms}
    return Folder(folder_of(str(policy.folder), [*task.values(), f"{mark:08x}"]), {**task, "fingerprint": mark})


def _means(command: Evaluate, group: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Over the runs, of each column that all of them have."""
    columns = [one.columns(command.protocol) for one in group]
    shared = [name for name in columns[0] if all(name in column for column in columns)]
    return {name: estimate([sum(c[name]) / len(c[name]) for c in columns])._asdict() for name in shared}


def _show(command: Evaluate, title: str, group: Sequence[Judged], means: Mapping[str, Any]) -> None:
    names = list(dict.fromkeys(name for one in group for name in one.columns(command.protocol)))
    rows, width = [], len(names) + (1 if command.protocol == "paper" else 2)  # the paper has one attack only
    cell = mean_of if len(group) == 1 else lambda returns: f"{sum(returns) / len(returns):.1f}"
    for one in group:
        columns = one.columns(command.protocol)
        cells = [cell(columns[name]) if name in columns else "" for name in names]
        rows.append([one.policy.name, *cells, one.case.attack][:width])
    if len(group) > 1:
        spans = [f"[{means[x]['low']:.1f}, {means[x]['high']:.1f}]" if x in means else "" for x in names]
        centres = [f"{means[x]['value']:.1f}" if x in means else "" for x in names]
        rows.append([f"mean of {len(group)}", *centres, ""][:width])
        rows.append(["95 % interval", *spans, ""][:width])
    print_table(title, ("run", *names, "found by")[:width], rows)


def _legend(command: Evaluate) -> str:
    learned = f"the last and the best adversary of {command.attack_episodes} episodes of soft actor-critic"
    attack = learned if command.protocol == "paper" else f"all attacks of the budget {command.budget}"
    return f"average: against the adversary of training; worst case: the lowest of {attack}, and nobody"
