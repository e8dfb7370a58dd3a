"""The command line as a Unix program: pipes that close, odd terminals."""

from __future__ import annotations

import io
import os
import pty
import subprocess

import pytest

import rhucrl
from probes import RHUCRL, run
from rhucrl.cli import main as cli
from rhucrl.runtime.progress import Progress
from rhucrl.runtime.tables import print_table
from rhucrl.runtime.terminal import unframed


def test_the_package_can_be_run():
    assert run("--version").stdout == f"rhucrl {rhucrl.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "stream"),
    [("train --help", "stdout"), ("list algos", "stdout"), ("--version", "stdout"), ("resume", "stderr")],
)
def test_a_reader_that_leaves_ends_the_program_quietly(arguments, stream):
    read, write = os.pipe()
    os.close(read)
    pipes = {"capture_output": False, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write}
    done = run(*arguments.split(), **pipes)
    os.close(write)
    assert done.returncode == 141
    assert not (done.stdout or done.stderr)


@pytest.mark.parametrize("arguments", ["--version", "list algos", "resume --help"])
def test_output_that_does_not_fit_is_a_failure(arguments):
    with open("/dev/full", "w") as full:
        done = run(*arguments.split(), capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "error: cannot write: No space left on device\n")


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", "list algos", 0),
        (">&-", "resume --help", 0),
        ("<&-", "list algos", 0),
        ("2>&-", "resume", 2),
        ("<&- >&- 2>&-", "resume", 2),
    ],
)
def test_closed_streams_do_no_harm(closed, arguments, code):
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *RHUCRL, *arguments.split()], capture_output=True)
    assert done.returncode == code
    assert b"Traceback" not in done.stdout + done.stderr
    assert bool(done.stdout) == (closed == "<&-")


def on_terminal(*arguments: str, **environment: str) -> str:
    keep = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    outer, inner = pty.openpty()
    process = subprocess.Popen([*RHUCRL, *arguments], stdout=inner, stderr=inner, env=keep | environment)
    os.close(inner)
    out = b""
    while True:
        try:
            part = os.read(outer, 1 << 16)
        except OSError:  # that is how a pseudo-terminal ends
            part = b""
        if not part:
            break
        out += part
    os.close(outer)
    assert process.wait() == 0
    return out.decode()


@pytest.mark.parametrize("arguments", [["list", "settings"], ["resume", "--help"]])
def test_colours_are_for_terminals_that_want_them(arguments):
    assert "\x1b[" in on_terminal(*arguments, TERM="xterm")
    assert "\x1b" not in on_terminal(*arguments, TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in on_terminal(*arguments, TERM="dumb")
    assert "\x1b" not in run(*arguments).stdout


@pytest.mark.parametrize("width", [20, 40])
def test_tables_and_help_are_whole_on_narrow_terminals(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [("constant-high", "-1234.5 [-1300.0, -1200.0]", "40000", "12.3"), ("none", "-1.0", "", "")]
    print_table("a policy", ("attack", "return", "steps", "CPU s"), rows)
    cli.main(["list", "settings"])
    with pytest.raises(SystemExit):
        cli.main(["attack", "--help"])
    out = capsys.readouterr().out
    assert "…" not in out
    for text in (
        "constant-high return: -1234.5 [-1300.0, -1200.0] steps: 40000 CPU s: 12.3 none return: -1.0",
        "a robot's bodies; the pendulum's gravity and mass",
        "--budget {quick,standard,thorough} How long to search: quick (searches only), standard",
    ):
        assert "".join(text.split()) in "".join(out.split())
    assert "How long to" in out  # on one line
    assert max(map(len, out.splitlines())) <= width
    assert os.environ["COLUMNS"] == str(width)


def test_mistakes_are_told_alike_on_narrow_terminals(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    assert cli.main(["train", "--setting", "adverserial"]) == 2
    assert "did you mean 'adversarial'?" in capsys.readouterr().err


def test_help_without_frames():
    rows = ["usage: x", "", "╭─ options ─────╮", "│ --a INT  One  │", "│          two. │", "│ --long INT    │"]
    text = "\n".join([*rows, "│          Six. │", "╰───────────────╯"])
    assert unframed(text, 30) == "usage: x\n\noptions:\n  --a INT\n    One two.\n  --long INT\n    Six.\n\n"


@pytest.mark.parametrize(
    ("columns", "term", "drawn"), [("80", "xterm", True), ("30", "xterm", False), ("80", "dumb", False)]
)
def test_progress_is_drawn_where_there_is_room(columns, term, drawn, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", term)
    file = io.StringIO()
    monkeypatch.setattr(file, "isatty", lambda: True)
    with Progress(30, "rh-ucrl pendulum seed 0", file) as progress:
        progress.update(7, "return -191  J in [-195, -189]")
    assert ("\x1b" in file.getvalue()) == drawn
    assert ("  7/30  0 s  " in file.getvalue()) != drawn
    assert "7/30" in file.getvalue()
    assert "…" not in file.getvalue()
    assert "J in [-195, -189]" in file.getvalue()
