"""The command line as a Unix program: completion, pipes that close, interrupts at any moment, odd terminals."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

import rhucrl
from rhucrl.cli import main as cli
from rhucrl.cli.completion import described
from rhucrl.errors import UsageError
from rhucrl.runtime import compilation
from rhucrl.runtime.processes import start
from rhucrl.runtime.progress import Progress
from rhucrl.runtime.tables import print_table
from rhucrl.runtime.terminal import unframed

RHUCRL = [sys.executable, "-m", "rhucrl"]
SMALL = {
    "horizon": 20, "pool": 16, "updates": 0.5, "batch": 8, "width": 8, "features": 8, "model-width": 8,
    "model-rounds": 2, "model-steps": 2, "acting-points": 3, "episodes": 100000,
}  # fmt: skip


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run([*RHUCRL, *arguments], **{"capture_output": True, "text": True, "env": buffered, **options})


def test_the_package_can_be_run():
    assert run("--version").stdout == f"rhucrl {rhucrl.__version__}\n"


# Completion


BASH = """
source <("$@" completion bash)
while IFS= read -r line; do
    IFS=, read -ra COMP_WORDS <<< "$line,"
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMPREPLY=()
    _rhucrl
    echo "${COMPREPLY[*]}"
done
complete -p rhucrl
"""


def test_bash_completes_commands_options_values_and_paths(tmp_path):
    (tmp_path / "runs").mkdir()
    lines = {
        "rhucrl,tr": "train",
        "rhucrl,train,--alg": "--algo",
        "rhucrl,train,--algo,r": "rh-ucrl rarl rap",
        "rhucrl,train,--algo,=,mini": "",
        "rhucrl,train,--algo,=,maximin": "maximin-mb maximin-mf",
        "rhucrl,train,hop": "hopper",
        "rhucrl,train,--strength,": "",
        "rhucrl,train,--run-dir,r": "runs",
        "rhucrl,evaluate,ru": "runs",
        "rhucrl,resume,train,--epi": "--episodes",  # a run may have a command's name
        "rhucrl,theory,v": "verify",
        "rhucrl,theory,verify,--game,": "drawn linear-quadratic",
        "rhucrl,video,RUN,--against,": "none learned worst runs",
    }
    given = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", *RHUCRL], input=given, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stderr == ""
    assert dict(zip(lines, done.stdout.splitlines(), strict=False)) == lines
    assert "_rhucrl rhucrl" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_hold_every_option_and_start_nothing(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "python" not in script
    for command in cli.COMMANDS:
        assert re.search(rf"\b{command}\b", script)
    for option in ("algo", "no-tensorboard", "against", "lengthscale"):
        assert re.search(rf"(-l |--){option}\b", script)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, capture_output=True).stderr == ""


def test_completion_knows_what_the_help_shows(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    for command in described(cli.COMMANDS).all():
        with pytest.raises(SystemExit):
            cli.main([*command.path, "--help"])
        shown = {
            name for line in capsys.readouterr().out.splitlines() if re.match(r"  -", line)
            for name in re.findall(r"--[\w-]+", line)
        }  # fmt: skip
        known = {name for option in command.options() for name in option.names} - {"--version"}
        shown -= set(re.findall(r"--[\w-]+", command.help))
        if command.path == ("train",):  # which shows the options of what is chosen
            assert shown < known and {"--heads", "--model-width", "--kernel", "--no-linear"} <= known
        else:
            assert shown == known, command.path


def test_fish_completes(tmp_path):
    if not shutil.which("fish"):
        pytest.skip("no fish")
    (tmp_path / "runs").mkdir()
    script = run("completion", "fish").stdout
    for line, expected in {
        "train --algo ra": ["rap", "rarl"],
        "evaluate ru": ["runs/"],
        "resume train --ep": ["--episodes"],
    }.items():
        code = f"{script}\ncomplete -C 'rhucrl {line}'"
        found = subprocess.run(["fish", "-c", code], capture_output=True, text=True, cwd=tmp_path).stdout
        assert [row.split("\t")[0] for row in found.splitlines()] == expected


# Streams


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


# Interrupts


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


# Terminals


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
