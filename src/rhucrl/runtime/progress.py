"""Progress on the screen: a live bar on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO

from rhucrl.runtime.terminal import console, live

PERIOD = 5.0  # seconds between plain lines


class ShowsProgress(Protocol):
    """What shows how far something is: `n` are done, `text` says how it goes."""

    def update(self, n: int, text: str = "") -> None: ...


class Silent:
    """No progress shown."""

    def update(self, n: int, text: str = "") -> None:
        pass


SILENT = Silent()


class Progress:
    """Counts up to `total`: `with Progress(30, "pendulum") as p: p.update(3, "return -412")`.

    `n` is the count reached, not the step made, so that a resumed run starts where it stands.
    """

    def __init__(self, total: int, label: str, file: TextIO | None = None):
        self.total, self.label = total, label
        self._file = file or sys.stderr
        self._bar: Any = None
        self._started = time.monotonic()
        self._next = self._started
        self._pending = ""

    def __enter__(self) -> Progress:
        taken = len(self.label) + 2 * len(str(self.total)) + 12
        if live(self._file, taken + 20):
            self._bar = _bar(self._file, taken)
            self._task = self._bar.add_task(self.label, total=self.total, text="")
            self._bar.start()
        return self

    def update(self, n: int, text: str = "") -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=n, text=text)
            return
        self._pending = f"{self.label}  {n}/{self.total}  {time.monotonic() - self._started:.0f} s  {text}".rstrip()
        if time.monotonic() >= self._next:
            self._print()

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._pending:
            self._print()

    def _print(self) -> None:
        print(self._pending, file=self._file, flush=True)
        self._pending, self._next = "", time.monotonic() + PERIOD


def _bar(file: TextIO, taken: int) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    screen = console(file)
    room = screen.width - taken >= 40  # for a bar and the text; without, the text is wrapped
    columns = (
        TextColumn("{task.description}", markup=False),
        *([BarColumn(bar_width=24)] if room else []),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=room)),
    )
    return Bar(*columns, console=screen, refresh_per_second=4)
