"""A plain installation is enough for everything that asks for no extra; every supported Python has its versions."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = {"imageio_ffmpeg", "onnx", "onnxruntime", "pettingzoo", "tinygp"}


def required(package: str, extras: frozenset[str] = frozenset()) -> set[tuple[str, frozenset[str]]]:
    """The packages that one asks for, with the extras that it asks of them."""
    found = set()
    for line in metadata.requires(package) or []:
        name, asked, marker = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]+)\])?[^;]*(?:;(.*))?", line).groups()
        of = re.findall(r"extra == ['\"]([\w-]+)", marker or "")
        if not of or extras & set(of):
            found.add((name.lower(), frozenset((asked or "").split(",")) - {""}))
    return found


def plain_installation() -> set[str]:
    todo, seen = [("rhucrl", frozenset())], set()
    while todo:
        package = todo.pop()
        if package not in seen:
            seen.add(package)
            try:
                todo += required(*package)
            except metadata.PackageNotFoundError:  # for another system or another version of Python
                continue
    return {name.replace("_", "-") for name, _ in seen}


def test_robots_need_no_extra():
    ours = plain_installation()
    absent = sorted(
        module
        for module, packages in metadata.packages_distributions().items()
        if not any(package.lower().replace("_", "-") in ours for package in packages)
    )
    assert set(absent) >= EXTRAS  # else this test would hide nothing
    code = f"""
        import sys
        sys.modules.update(dict.fromkeys({absent!r}))
        import rhucrl
        env = rhucrl.make("half-cheetah", "adversarial")
        env.reset(seed=0)
        env.step({{"agent": env.action_space["agent"].sample(), "adversary": env.action_space["adversary"].sample()}})
        import rhucrl.training.agent, rhucrl.cli.attack, rhucrl.cli.envs, rhucrl.cli.theory, rhucrl.training.loop
        import rhucrl.experiments.report, rhucrl.experiments.video, rhucrl.attacks.foreign
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("python", PYTHONS)
def test_constraints_pin_every_requirement_within_its_bounds(python):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    here = {"python_version": python, "python_full_version": f"{python}.1"}
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(here)]
    versions = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(versions) == len(pins)  # one version of each
    assert not any(pin.url for pin in pins)
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        for requirement in map(Requirement, group):
            if requirement.name != "rhucrl":
                assert versions[requirement.name.lower()] in requirement.specifier, requirement


def test_the_supported_pythons_are_those_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (\d+\.\d+)", "\n".join(project["classifiers"]))
    tested = re.search(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1)
    assert named == list(PYTHONS) == [name.removeprefix("python") for name in tested.split()]
