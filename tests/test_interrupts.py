"""Interrupts at any moment: the program stops, says what continues, and leaves nobody behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from probes import RHUCRL
from rhucrl.runtime.processes import start

SMALL = {
    "horizon": 20, "pool": 16, "updates": 0.5, "batch": 8, "width": 8, "features": 8, "model-width": 8,
    "model-rounds": 2, "model-steps": 2, "acting-points": 3, "episodes": 100000,
}  # fmt: skip


def interrupted(process: subprocess.Popen[str], *signs: int) -> tuple[int, str]:
    """The exit code and all that is said after `up`, where the signals come."""
    while "up" not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]
    for sign in signs:
        process.send_signal(sign)
        time.sleep(0.05)
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def begin(*command: str | Path, **options) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(list(map(str, command)), **pipes, **options)


def code(body: str) -> list[str]:
    """A program whose `main` has this body."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    head = "import hashlib, subprocess, sys, time\nfrom rhucrl.cli import main as cli\n"
    head += "from rhucrl.runtime import interrupts, processes\n"
    head += "from rhucrl.errors import UsageError\n"
    return [sys.executable, "-c", f"{head}def main():\n{lines}    return 0\nsys.exit(interrupts.run(main))"]


def gone(pids: Iterable[int]) -> None:
    """Wait until processes have ended; those that nobody has asked about yet count."""
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            while Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z":
                time.sleep(0.01)


def slow_imports(folder: Path) -> dict[str, str]:
    """An environment in which JAX takes a minute to import, and in it an exception is a crash, as in jaxlib."""
    (folder / "jax.py").write_text(
        "import os, time\ntry: print('up', flush=True), time.sleep(60)\nexcept KeyboardInterrupt: os.abort()\n"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))}


@pytest.mark.parametrize(
    ("arguments", "sign", "told"),
    [
        ("train --run-dir run", signal.SIGINT, "stopped: nothing was saved\n"),
        ("train --run-dir run", signal.SIGTERM, "stopped: nothing was saved\n"),
        ("resume run", signal.SIGINT, "stopped: `rhucrl resume run` continues\n"),
        ("attack run", signal.SIGINT, "stopped: the same command goes on where it was\n"),
        ("oracle", signal.SIGINT, "stopped\n"),
    ],
)
def test_an_interrupt_inside_an_import(arguments, sign, told, tmp_path):
    background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]  # where a shell has interrupts ignored
    environment = slow_imports(tmp_path)
    if arguments.startswith("resume"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.json").write_text("{}")  # it looks like a run, which takes long to read
    process = begin(*background, *RHUCRL, *arguments.split(), cwd=tmp_path, env=environment)
    assert interrupted(process, sign) == (128 + sign, told)


def test_an_interrupt_ends_every_seed(tmp_path):
    environment, seeds = slow_imports(tmp_path), min(2, len(os.sched_getaffinity(0)))
    process = begin(*RHUCRL, "train", "--seeds", "0", "1", "--run-dir", "runs", cwd=tmp_path, env=environment)
    children: list[int] = []
    while len(children) < seeds:
        assert process.poll() is None, process.communicate()
        children = [
            int(pid)
            for file in Path(f"/proc/{process.pid}/task").glob("*/children")
            for pid in file.read_text().split()
        ]
    exit_code, text = interrupted(process, signal.SIGTERM)
    assert exit_code == 143
    assert text.endswith("stopped: nothing was saved\n")
    assert "Traceback" not in text
    gone(children)


def test_a_run_that_is_stopped_says_how_to_resume(tmp_path):
    options = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    with begin(*RHUCRL, "train", *options, "--run-dir", "my run", cwd=tmp_path) as process:
        while not (tmp_path / "my run" / "config.json").exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err.splitlines()[-1] == "stopped: `rhucrl resume 'my run'` continues"
    assert "Traceback" not in out + err


LOST = {
    "swallowed": "try: time.sleep(60)\nexcept KeyboardInterrupt: time.sleep(60)",
    "another": "try: time.sleep(60)\nexcept KeyboardInterrupt: 1 / 0",
    "printed": "class A:\n    def __del__(self): time.sleep(60)\nA()\ntime.sleep(60)",
    "mistaken": "def lose(_):\n    try: time.sleep(60)\n    except KeyboardInterrupt: raise UsageError\n"
    "cli._parse = lose\ninterrupts.expect = len\nreturn cli.main(['x'])",
    "late": "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)",  # no Python runs meanwhile, as when XLA compiles
}


@pytest.mark.parametrize("how", LOST)
def test_an_interrupt_is_never_lost(how):
    body = f"interrupts.GRACE = 0.2\ninterrupts.advise(lambda: 'go on')\nprint('up', flush=True)\n{LOST[how]}"
    assert interrupted(begin(*code(body)), signal.SIGINT) == (130, "stopped: go on\n")


def test_the_second_interrupt_stops_at_once_and_ends_the_children(tmp_path):
    body = (
        "interrupts.GRACE = 600\n"
        "ours = processes.start(['sh', '-c', 'sleep 600 & echo $!; wait'], processes.own_cores()[0])\n"
        "other = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL)\n"
        "open(sys.argv[1], 'w').write(f'{ours.pid} {ours.stdout.readline()} {other.pid}')\n"
        "print('up', flush=True)\n" + LOST["late"]
    )
    assert interrupted(begin(*code(body), tmp_path / "pids"), signal.SIGINT, signal.SIGINT) == (130, "stopped\n")
    gone(map(int, (tmp_path / "pids").read_text().split()))


def test_a_signal_waits_until_a_child_is_ready_for_it():
    body = "import time; time.sleep(0.3); from rhucrl.runtime import interrupts; interrupts.run(lambda: time.sleep(60))"
    with start([sys.executable, "-c", body], sorted(os.sched_getaffinity(0))[0], stderr=subprocess.STDOUT) as child:
        child.send_signal(signal.SIGINT)
        assert (child.stdout.read(), child.wait()) == ("stopped\n", 130)


def test_a_program_that_nobody_interrupts_keeps_its_code_and_its_traceback():
    for body, expected in {"sys.exit(3)": (3, ""), "1 / 0": (1, "ZeroDivisionError")}.items():
        done = subprocess.run(code(body), capture_output=True, text=True)
        assert done.returncode == expected[0]
        assert expected[1] in done.stderr
        assert ("Traceback" in done.stderr) == bool(expected[1])
