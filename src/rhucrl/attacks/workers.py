"""Episodes on several cores: processes that each have the policy and its environment, and play whom they are asked to.

An episode depends on its adversary and its seed alone, so that who plays it and when makes no difference. Adversaries
travel as JSON.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from rhucrl.attacks.arena import EpisodeResult, HostArena
from rhucrl.attacks.families import Member, member
from rhucrl.attacks.planning import PlanningAdversary
from rhucrl.errors import UsageError
from rhucrl.runtime.interrupts import end
from rhucrl.runtime.processes import own_cores, start


def described(adversary: Any) -> dict[str, Any] | None:
    """The adversary as JSON; None if it is no data."""
    if isinstance(adversary, Member):
        return {"family": adversary.family, "weights": adversary.weights.tolist()}
    if isinstance(adversary, PlanningAdversary):
        return {"depth": adversary.depth, "hold": adversary.hold, "actions": adversary.actions.tolist()}
    return None


def revived(game: Any, adversary: dict[str, Any]) -> Any:
    if "family" in adversary:
        return member(game, adversary["family"], adversary["weights"])
    return PlanningAdversary(adversary["depth"], adversary["hold"], np.asarray(adversary["actions"]))


class Workers:
    """Processes, one on each of some cores; `subject` are the fields of a `Subject`."""

    def __init__(self, subject: dict[str, Any], jobs: int):
        command = [sys.executable, "-m", "rhucrl.attacks.workers", json.dumps(subject)]
        self._processes = [start(command, core, stdin=subprocess.PIPE) for core in own_cores()[:jobs]]
        self._idle: queue.SimpleQueue = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._pool, self._lock = ThreadPoolExecutor(len(self._processes)), threading.Lock()
        self.steps, self.cpu = 0, 0.0

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            with process:
                end(process)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def play(
        self, adversaries: Sequence[Any], seeds: Sequence[int], watch: Callable[[], None]
    ) -> list[list[EpisodeResult]]:
        tasks = [[self._pool.submit(self._one, each, seed) for seed in seeds] for each in map(described, adversaries)]
        rows = []
        for task in tasks:
            rows.append([future.result() for future in task])
            watch()
        return rows

    def _one(self, adversary: Any, seed: int) -> EpisodeResult:
        process = self._idle.get()
        try:
            print(json.dumps({"adversary": adversary, "seed": seed}), file=process.stdin, flush=True)
            reply = json.loads(process.stdout.readline() or '{"failed": "a process of the attack has died"}')
        finally:
            self._idle.put(process)
        if "failed" in reply:
            raise UsageError(reply["failed"])
        with self._lock:
            self.steps, self.cpu = self.steps + reply["steps"], self.cpu + reply["cpu"]
        return EpisodeResult(*reply["played"])


def work(subject: dict[str, Any]) -> None:
    """Play what the lines of the standard input ask for."""
    from rhucrl.attacks.subject import Subject

    clip = subject.pop("clip")
    policy, env = Subject(**subject).meet()
    arena = HostArena(policy, env, clip)
    for line in sys.stdin:
        asked, clock, steps = json.loads(line), time.process_time(), arena.steps
        try:
            ((played,),) = arena.play([revived(env.game, asked["adversary"])], [asked["seed"]])
            reply: dict[str, Any] = {"played": played, "steps": arena.steps - steps, "cpu": time.process_time() - clock}
        except UsageError as error:
            reply = {"failed": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
