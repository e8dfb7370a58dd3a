"""The compilation cache serves a second process, survives damage, and can be switched off; compile time is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from rhucrl.errors import UsageError
from rhucrl.runtime import compilation
from rhucrl.runtime.compilation import cache_folder, compiled

CODE = """
import time, jax, jax.numpy as jnp
from rhucrl.runtime.compilation import compile_seconds, enable_cache
enable_cache()
start = time.time()
program, x = jax.jit(lambda x: jax.jit(jnp.sin)(x @ x).sum()), jnp.ones((3, 3))
print(float(program(x)))
before = compile_seconds()
assert 0 < before <= time.time() - start, before
float(program(x))
assert compile_seconds() == before, "a program that was compiled before is counted again"
jax.jit(lambda x: jnp.cos(x @ x).sum())(x)
assert before < compile_seconds() <= time.time() - start, (before, compile_seconds())
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


def test_programs_compiled_inside_another_count_once(monkeypatch):
    monkeypatch.setattr(compilation, "_spans", [])
    for event, start, end in (
        ("compile/inner", 2, 3),
        ("compile/outer", 1, 5),
        ("other", 5, 7),
        ("compile/next", 7, 8),
    ):
        compilation._add(f"/jax/core/{event}", start, end)
    assert compilation.compile_seconds() == 5


def test_the_folder_is_the_users(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder().parent == Path.home() / ".cache" / "rhucrl" / "xla"


def test_programs_for_one_core_are_kept_apart_from_those_for_two(monkeypatch):
    folders = set()
    for cores in ([0], [1], [0, 1]):
        monkeypatch.setattr(compilation, "own_cores", lambda cores=cores: cores)
        folders.add(cache_folder())
    assert len(folders) == 2


@pytest.fixture
def jitted_with(monkeypatch):
    """The compile options of every `jax.jit`, while XLA is asked anew which ones it has."""
    asked, jit = [], jax.jit

    def record(function, **options):
        asked.append(options["compiler_options"])
        return jit(function, **options)

    monkeypatch.setattr(jax, "jit", record)
    compilation._unknown_options.cache_clear()
    yield asked
    compilation._unknown_options.cache_clear()


def double(x):
    return 2 * x


def test_options_that_xla_lacks_are_left_out_and_the_others_are_not(monkeypatch, jitted_with):
    unknown = compilation._unknown_options()
    monkeypatch.setitem(compilation.OPTIONS, "xla_no_such_option", 1)
    compilation._unknown_options.cache_clear()
    assert compilation._unknown_options() == unknown | {"xla_no_such_option"}
    for often in (True, False):
        assert compiled(often=often)(double)(4) == 8
        expected = compilation.OPTIONS | {"xla_cpu_use_fusion_emitters": often}
        assert jitted_with[-1] == {
            name: value for name, value in expected.items() if name not in {*unknown, "xla_no_such_option"}
        }
    assert jitted_with[-1]["xla_backend_optimization_level"] == 1  # every version has this one


def test_xla_is_asked_once(jitted_with):
    first, second = compiled()(double), compiled(often=False)(double)
    assert not jitted_with  # not even once before a program is called
    first(1)
    before = len(jitted_with)
    assert second(1) == first(1) == 2
    assert len(jitted_with) == before + 1  # the second program itself


def test_a_compiled_function_is_still_a_jitted_one():
    program = compiled("times")(lambda x, times: x * times)
    assert program(2, times=3) == 6
    assert "mul" in str(program.trace(2, times=3).jaxpr)
    assert compiled()(double).__wrapped__ is double


def test_xla_does_not_start_at_import():
    code = (
        "import rhucrl.runtime.compilation, rhucrl.training.theory_log, rhucrl.model_free.ppo, jax\n"
        "print(jax._src.xla_bridge._backends)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "{}\n", done.stderr


def test_no_home_is_no_cache(monkeypatch):
    def nobody(_):
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(UsageError, match="set HOME or XDG_CACHE_HOME"):
        compilation.cache_folder()
    monkeypatch.setattr(compilation, "_chosen_by_user", lambda: False)
    before = compilation.jax.config.values["jax_compilation_cache_dir"]
    compilation.enable_cache()
    assert compilation.jax.config.values["jax_compilation_cache_dir"] == before
