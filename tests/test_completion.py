"""Completion in bash, zsh and fish: every command, option and value, and nothing is started for it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from probes import RHUCRL, run
from rhucrl.cli import main as cli
from rhucrl.cli.completion import described

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
