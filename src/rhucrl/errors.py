"""The ways in which a command fails without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A user's mistake: one line that names the mistake and the remedy. The command exits with 2."""


class SimulationError(RuntimeError):
    """A simulator left the range in which its numbers mean something. The command exits with 1."""


class DiskError(OSError):
    """The disk is full or failing: one line that names the file. The command exits with 1."""


SYNONYMS = {  # what people call a thing that has another name here
    "adversarial": ("force", "forces", "push", "wind", "gravity", "disturbance"),
    "parameter": ("mass", "masses", "friction"),
}


def unknown(kind: str, given: str, known: Iterable[str]) -> UsageError:
    """The mistake of naming something that does not exist, with the nearest thing that does."""
    known = list(known)
    near = [name for name, words in SYNONYMS.items() if given.lower() in words and name in known]
    near = near or difflib.get_close_matches(given.lower(), known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown {kind} {given!r}: {hint}choose from {', '.join(known)}")
