"""What surrounds a command: output that nobody reads, and terminals that are narrow or plain."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import select
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import IO, Any

CLOSED = 141  # the exit code of a program whose reader left: 128 + SIGPIPE, as a shell has it
NARROW = 60  # columns; below, help is not set in columns


def written(command: Callable[[], int]) -> int:
    """The command's exit code once its output is written: `CLOSED` if its reader has left, 1 if there is no room."""
    try:
        try:
            code: Any = command()
        except SystemExit as end:  # with a message, that is Python's to print
            if not isinstance(code := end.code or 0, int):
                raise
        sys.stdout.flush()
        sys.stderr.flush()
        return code
    except OSError as error:
        if isinstance(error, BrokenPipeError) and any(map(_left, (1, 2))):
            code, message = CLOSED, ""
        elif error.errno == errno.ENOSPC and error.filename is None:
            code, message = 1, f"error: cannot write: {error.strerror}\n"
        else:
            raise
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what is left in the buffer would fail again when Python ends
    if _left(2):
        os.dup2(nowhere, 2)
    sys.stderr.write(message)
    return code


def _left(number: int) -> bool:
    """Whether nobody reads a stream any more."""
    poll = select.poll()
    poll.register(number, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def console(file: IO[str] | None = None) -> Any:
    """rich's, which leaves a reader that left to us, and bold and dim too where NO_COLOR is set."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise

    return Plain(file=file, color_system=None if os.environ.get("NO_COLOR") else "auto", highlight=False)


def live(file: IO[str], columns: int) -> bool:
    """Whether a line of so many columns can be drawn over and over."""
    able = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    return file.isatty() and able and console(file).width >= columns


@contextlib.contextmanager
def readable_help() -> Iterator[None]:
    """What is printed inside, which is tyro's help: plain if NO_COLOR is set, and in lines that fit."""
    width = shutil.get_terminal_size().columns
    narrow = width < NARROW
    if not narrow and not os.environ.get("NO_COLOR"):
        yield
        return
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(max(width, NARROW))
    # No terminal: no colours. The encoding decides whether there are frames.
    file = io.TextIOWrapper(io.BytesIO(), "utf-8" if narrow else sys.stdout.encoding)
    try:
        with contextlib.redirect_stdout(file):
            yield
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
        file.seek(0)
        print(unframed(file.read(), width) if narrow else file.read(), end="")


def unframed(text: str, width: int) -> str:
    """Help without frames and columns: every option on a line of its own, and what it means below."""
    rows: list[tuple[str, str]] = []  # with the indentation
    for line in text.splitlines():
        inner = line.strip("│").rstrip()
        if not inner.strip("╰╯─ "):
            rows.append(("", ""))
        elif line.startswith("╭"):
            rows.append(("", line.strip("╭╮─ ") + ":"))
        elif not line.startswith("│"):
            rows.append(("", line))
        elif re.match(r" {5}", inner):  # more of what the option above means
            before = rows.pop()[1] if rows[-1][0] == "    " else ""
            rows.append(("    ", f"{before} {inner.strip()}".strip()))
        else:
            name, *meaning = re.split(r"\s{2,}", inner.strip(" •"), maxsplit=1)
            rows += [("  ", name), *(("    ", part) for part in meaning)]
    lines = [textwrap.wrap(row, max(width, 12), initial_indent=at, subsequent_indent=at) or [""] for at, row in rows]
    return "".join(f"{line}\n" for part in lines for line in part)
