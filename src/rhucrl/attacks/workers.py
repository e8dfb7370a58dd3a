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


def revived(game: Any, described: dict[str, Any]) -> Member | PlanningAdversary:
    if "family" in described:
        return member(game, described["family"], described["weights"])
    return PlanningAdversary(described["depth"], described["hold"], np.asarray(described["actions"]))


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
        self, described: Sequence[dict[str, Any]], seeds: Sequence[int], watch: Callable[[], None]
    ) -> list[list[EpisodeResult]]:
        tasks = [[self._pool.submit(self._one, adversary, seed) for seed in seeds] for adversary in described]
        rows = []
        for task in tasks:
            rows.append([future.result() for future in task])
            watch()
        return rows

    def _one(self, adversary: Any, seed: int) -> EpisodeResult:
        process = self._idle.get()
        try:
            print(json.dumps({"adversary": adversary, "seed": seed}), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline() or '{"failed": "a process of the attack has died"}')
        finally:
            self._idle.put(process)
        if "failed" in answer:
            raise UsageError(answer["failed"])
        with self._lock:
            self.steps, self.cpu = self.steps + answer["steps"], self.cpu + answer["cpu"]
        return EpisodeResult(*answer["played"])


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
            spent = {"steps": arena.steps - steps, "cpu": time.process_time() - clock}
            answer: dict[str, Any] = {"played": played, **spent}
        except UsageError as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
