"""How annotations are checked while tests run: jaxtyping's shapes, by beartype, in the modules named here.

A function that is written for JAX takes NumPy's arrays and JAX's constants as well: what counts is shape and number.
Functions that users call are not among them: these say in their own words what is wrong.
"""

from __future__ import annotations

from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

MODULES = (
    "envs.game", "envs.pendulum", "networks", "models", "hallucination", "theory", "replay",
    "solvers.base", "solvers.look_ahead",
)  # fmt: skip

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number is a number


def check_shapes() -> None:
    """From now on, for modules that are not imported yet."""
    jaxtyping.Array = Any
    jaxtyping.install_import_hook([f"rhucrl.{name}" for name in MODULES], f"{__name__}.checked")
