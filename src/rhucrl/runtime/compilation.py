"""What JAX compiles: kept between processes, and its time counted apart from the run's."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
from jax.core import Tracer

from rhucrl.errors import UsageError
from rhucrl.runtime.processes import own_cores, processors

F = TypeVar("F", bound=Callable)
OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_experimental_ynn_fusion_type": "",  # its products of small matrices take a third longer
    "xla_disable_hlo_passes": "tree_reduction_rewriter",  # two kernels to compile for every sum, no faster than one
}
_SWITCH = "RHUCRL_CACHE"
LARGE = 0.5  # seconds that a program takes to compile, above which it leaves much memory behind
_spans: list[tuple[float, float]] = []
_listening = False


class _Program:
    """A function and the `jax.jit` of it, made at the first call: XLA does not start when a module is imported."""

    def __init__(self, function: Callable, static: tuple[str, ...], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._static, self._options = function, static, options

    @functools.cached_property
    def _jitted(self) -> Any:
        options = {name: value for name, value in self._options.items() if name not in _unknown_options()}
        return jax.jit(self._function, static_argnames=self._static, compiler_options=options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inside = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        return (self._function if inside else self._jitted)(*args, **kwargs)  # options are the outermost program's

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jitted, name)  # trace, lower and whatever else a jitted function has


def compiled(*static: str, often: bool = True) -> Callable[[F], F]:
    """`jax.jit` for programs that run only tens of times: a lower level of optimisation compiles faster.

    A program that does not run `often` also goes without the fusions that run faster but take longer to compile.
    """
    options = OPTIONS | {"xla_cpu_use_fusion_emitters": often}
    return cast(Callable[[F], F], functools.partial(_Program, static=static, options=options))


@functools.cache
def _unknown_options() -> frozenset[str]:
    """Those of the options that the installed XLA lacks: it says so only when it compiles, so it is asked to."""
    if _compiles(OPTIONS):
        return frozenset()
    return frozenset(name for name, value in OPTIONS.items() if not _compiles({name: value}))


def _compiles(options: dict[str, Any]) -> bool:
    program = jax.jit(lambda: 0, compiler_options=options).lower()
    try:
        program.compile()
    except Exception:  # its class differs between versions; what else is wrong, the program itself will meet
        return False
    return True


def enable_cache() -> None:
    """Keep compiled programs in the user's cache folder, unless RHUCRL_CACHE=off or the user chose another folder."""
    _listen()
    if os.environ.get(_SWITCH, "").lower() in ("off", "0", "no", "false") or _chosen_by_user():
        return
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UsageError):
        return
    if not os.access(folder, os.W_OK):
        return
    # A process killed while it wrote an entry leaves a torn one: JAX compiles anew, which deserves no alarm.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def cache_folder() -> Path:
    """One folder for each kind of processor and number of cores.

    Programs compiled for one processor may not run on another with the same home, and those compiled for two cores are
    divided into pieces that only cost time on one.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        raise UsageError("you have no home folder to keep a cache in: set HOME or XDG_CACHE_HOME") from None
    return home / "rhucrl" / "xla" / hashlib.sha256(_processor().encode()).hexdigest()[:12]


def compile_seconds() -> float:
    """Seconds of tracing, lowering and compiling (or fetching from the cache) since the first call of this module."""
    _listen()
    return sum(end - start for start, end in _spans)


def _chosen_by_user() -> bool:
    return jax.config.values["jax_compilation_cache_dir"] is not None


def _processor() -> str:
    features = sorted({line for line in processors() if line.startswith(("flags", "Features"))})
    return f"{platform.machine()} {len(own_cores())}{''.join(features)}"


def _listen() -> None:
    global _listening
    if not _listening:
        _listening = True
        jax.monitoring.register_event_time_span_listener(_add)


def _add(event: str, start_time: float, end_time: float, **_: object) -> None:
    """Count a span once: tracing a function traces, and sometimes compiles, others inside it."""
    if event.startswith("/jax/core/compile/"):
        while _spans and _spans[-1][0] >= start_time:
            _spans.pop()
        _spans.append((start_time, end_time))
        if end_time - start_time > LARGE:
            _return_memory()


def _return_memory() -> None:
    """What compiling a large program took stays with the allocator: half of what a robot's run would hold."""
    with contextlib.suppress(OSError, AttributeError):  # not of every system's C library
        ctypes.CDLL(None).malloc_trim(0)
