"""Mistakes on the command line, in one line each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rhucrl.errors import UsageError, unknown


def demand_least(command: Any, **least: float) -> None:
    """Each of these options is at least so much, if it is given."""
    for name, value in least.items():
        if (given := getattr(command, name)) is not None and given < value:
            raise UsageError(f"--{name.replace('_', '-')} is {given}; it must be at least {value}")


def demand_folder(output: Path | None) -> None:
    """A result can be written there, if it shall be."""
    if output and not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.absolute().parent}")


def one_line(box: str) -> str:
    """tyro's message without its frame, and with the nearest choice."""
    lines = [line.strip("│| ") for line in box.splitlines() if not line.startswith(("╭", "╰", "+"))]
    parts = " ".join(";" if set(line) <= {"─", "-"} else line for line in lines).split(" ; ")
    text = "; ".join(part for part in parts if not part.startswith(("For full helptext", "Argument helptext")))
    if found := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*)\)", text):
        given, argument, choices = found.groups()
        return str(unknown(argument, given, re.findall(r"'(.*?)'", choices)))
    if found := re.search(r"Unrecognized (?:or misplaced )?options: ([^\s,;]+)", text):
        near = re.search(r"Perhaps you meant:.*?(--[\w-]+)|Similar.*?(--[\w-]+)", text[found.end() :])
        near = near or re.search(r"(--[\w-]+)", re.sub(r"--help", "", text[found.end() :]))
        hint = f"did you mean {next(filter(None, near.groups()))}?" if near else "--help shows the valid ones"
        return f"unknown option {found[1]}: {hint}"
    if found := re.search(
        r"Error parsing (--\S+): no type matching (\S+) could be instantiated from \['(.*?)'\]", text
    ):
        option, kinds, given = found.groups()
        return f"{option} is {given!r}; it must be {kinds.replace('|', ' or ').replace('{', '').replace('}', '')}"
    return text or "bad usage: --help shows the options"
