"""What all tests share."""

from __future__ import annotations

import importlib.util

import jax
import pytest

if importlib.util.find_spec("beartype"):  # an installed wheel is tried without it
    from shapes import check_shapes

    check_shapes()


@pytest.fixture(autouse=True, scope="module")
def programs_do_not_pile_up():
    """Each compiled program maps pieces of memory, and a process may have only so many: beyond, it crashes."""
    yield
    jax.clear_caches()
