"""The texts of a dataclass' fields: the strings below them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from typing import Any


@functools.cache
def field_texts(kind: type) -> dict[str, str]:
    """The strings below the fields of a dataclass, and of those that it was made from."""
    texts = {}
    for base in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except OSError:  # made while the program runs
            continue
        body: list[Any] = tree.body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return texts
