"""Commands side by side, each in a process of its own on a core of its own."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rhucrl.runtime import interrupts


def run_side_by_side(commands: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Run all commands, as many at a time as there are cores, show their lines, and give their exit codes.

    An interrupt is passed on to every command, and raised again when they have ended.
    """
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in (available := own_cores()):
        cores.put(core)
    started: list[subprocess.Popen[str]] = []
    stopping = threading.Event()

    def run(name: str, command: Sequence[str]) -> int:
        core = cores.get()
        try:
            with start(command, core, stderr=subprocess.STDOUT) as process:
                started.append(process)
                if stopping.is_set():  # it began while the others were being stopped, and has nothing to lose
                    interrupts.end(process)
                for line in process.stdout or ():
                    print(f"{name} | {line}", end="", flush=True)
            return process.returncode if process.returncode >= 0 else 1
        finally:
            cores.put(core)

    with _terminated_as_interrupted(), ThreadPoolExecutor(len(available)) as pool:
        try:
            running = {name: pool.submit(run, name, command) for name, command in commands.items()}
            return {name: future.result() for name, future in running.items()}
        except BaseException:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in started:
                process.send_signal(signal.SIGINT)
            raise


def own_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def processors() -> list[str]:
    """What the system says about its processors, where it does; a line per fact."""
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def start(command: Sequence[str], core: int, **pipes: Any) -> subprocess.Popen[str]:
    """Start a command of ours, its output in a pipe, which ends at the latest when this process does.

    It has a session of its own: a terminal's interrupt reaches it once, through us, and not twice. Signals wait until
    it has handlers for them (`interrupts.run`): until then Python would answer with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.SIGNALS)
    try:
        with interrupts.starting:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **pipes)
            interrupts.children.append(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    pin(process.pid, core)
    return process


def pin(process: int, core: int) -> None:
    """Keep a process (0: this one) on one core, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(ProcessLookupError):  # it may have ended already
            os.sched_setaffinity(process, {core})


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Both signals raise KeyboardInterrupt here; a shell that starts us in the background would have one ignored.

    The commands start with both at their defaults then, since only an ignored signal is inherited.
    """
    before = {sign: signal.signal(sign, signal.default_int_handler) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
