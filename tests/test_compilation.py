"""The compilation cache serves a second process, survives damage, and can be switched off; compile time is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rhucrl import compilation
from rhucrl.compilation import cache_folder

CODE = """
import time, jax, jax.numpy as jnp
from rhucrl.compilation import compile_seconds, enable_cache
enable_cache()
start = time.time()
print(float(jax.jit(lambda x: jax.jit(jnp.sin)(x @ x).sum())(jnp.ones((3, 3)))))
assert 0 < compile_seconds() <= time.time() - start, compile_seconds()
before = compile_seconds()
jnp.ones((3, 3)) + 0
"""


def compile_with(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # What the machine's own settings say about JAX's cache is no part of this test.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "RHUCRL_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE],
        capture_output=True,
        text=True,
        env=inherited | {"XDG_CACHE_HOME": str(home), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


def entries(home: Path) -> list[Path]:
    return sorted((home / "rhucrl" / "xla").glob("*/*-cache"))


def test_programs_are_kept_and_torn_entries_do_no_harm(tmp_path):
    first = compile_with(tmp_path)
    kept = entries(tmp_path)
    assert kept
    kept[0].write_bytes(kept[0].read_bytes()[:100])
    second = compile_with(tmp_path)
    assert second.stdout == first.stdout
    assert entries(tmp_path) == kept


def test_it_can_be_switched_off_and_does_without_a_folder(tmp_path):
    compile_with(tmp_path, RHUCRL_CACHE="off")
    assert not entries(tmp_path)
    (tmp_path / "file").touch()
    compile_with(tmp_path / "file")


def test_the_folder_is_the_users(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder().parent == Path.home() / ".cache" / "rhucrl" / "xla"


def test_programs_for_one_core_are_kept_apart_from_those_for_two(monkeypatch):
    folders = set()
    for cores in ([0], [1], [0, 1]):
        monkeypatch.setattr(compilation, "own_cores", lambda cores=cores: cores)
        folders.add(cache_folder())
    assert len(folders) == 2
