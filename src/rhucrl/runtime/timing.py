"""Where the seconds go. They are kept apart from the metrics, which are exact and the same on every machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import jax

from rhucrl.runtime.compilation import compile_seconds

Phase = Literal["solving", "evaluating", "collecting", "fitting", "checkpointing"]
PHASES: tuple[Phase, ...] = ("solving", "evaluating", "collecting", "fitting", "checkpointing")
T = TypeVar("T")

COMPILING = "compiling"  # what happens in a call that compiles something

_spent: dict[str, float] = dict.fromkeys((*PHASES, COMPILING), 0.0)


def timed(phase: Phase, work: Callable[..., T], *arguments: Any) -> T:
    """`work(*arguments)`, finished when this returns; its CPU seconds count for the phase, or for compiling."""
    began, compiled = time.process_time(), compile_seconds()
    result = jax.block_until_ready(work(*arguments))
    _spent[phase if compile_seconds() == compiled else COMPILING] += time.process_time() - began
    return result


class Clock:
    """CPU, wall and compile seconds since the last lap, and the CPU seconds of each phase."""

    def __init__(self) -> None:
        self._last = self._read()

    def lap(self) -> dict[str, float]:
        before, self._last = self._last, self._read()
        return {name: round(now - before[name], 3) for name, now in self._last.items()}

    @staticmethod
    def _read() -> dict[str, float]:
        whole = {"cpu": time.process_time(), "wall": time.monotonic(), "compile": compile_seconds()}
        return whole | _spent


def profile(laps: list[dict[str, float]]) -> dict[str, float]:
    """CPU seconds of a run's phases, of compiling, and of the rest."""
    spent = {name: sum(lap.get(name, 0.0) for lap in laps) for name in (*PHASES, COMPILING)}
    return spent | {"other": max(sum(lap["cpu"] for lap in laps) - sum(spent.values()), 0.0)}
