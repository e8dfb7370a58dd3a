"""The work in a traced program."""

from __future__ import annotations

import math
from typing import Any


def gflop(program: Any) -> float:
    """Of all products of matrices in a traced program, with every turn of its loops; the rest is a few per cent."""

    def inside(value: Any) -> float:
        if isinstance(value, tuple | list):
            return sum(map(inside, value))
        program = getattr(value, "jaxpr", value)
        return sum(map(of, program.eqns)) if hasattr(program, "eqns") else 0.0

    def of(equation: Any) -> float:
        given = equation.params
        if equation.primitive.name == "dot_general":
            summed = [equation.invars[0].aval.shape[i] for i in given["dimension_numbers"][0][0]]
            return 2e-9 * equation.outvars[0].aval.size * math.prod(summed)
        return given.get("length", 1) * inside(list(given.values()))

    return inside(program)
