"""Tables on the screen."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

NUMBERS = ("return", "steps", "CPU s", "nominal", "average", "worst case", "last", "best")  # columns of them


def print_table(title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; where it does not fit, every row as a list."""
    from rich.table import Table

    from rhucrl.runtime.terminal import console

    table, screen = Table(title=title, title_justify="left"), console()
    for name in head:
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    for row in rows:
        table.add_row(*row)
    if screen.measure(table, options=screen.options.update(max_width=1000)).minimum <= screen.width:
        screen.print(table)
        return
    lines = [title] if title else []
    for first, *others in rows:
        lines += [first, *(f"  {name}: {text}" for name, text in zip(head[1:], others, strict=True) if text)]
    for line in lines:
        print(textwrap.fill(line, max(screen.width, 10), subsequent_indent="    "))
