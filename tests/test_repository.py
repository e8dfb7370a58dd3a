"""What is written down holds on any machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = re.compile(
    rb"(?<![\w.~])/(?:work|root|home|Users)/\S*"
)  # of somebody's files; an address has a host before it


def places(text: bytes) -> list[bytes]:
    return [] if b"\0" in text else PLACES.findall(text)


def test_no_file_names_a_place_on_somebodys_machine():
    git = shutil.which("git")
    listed = git and subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if not listed or listed.returncode:
        pytest.skip("only a checkout knows which files are the repository's")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert Path(__file__) in files
    found = {path.name: places(path.read_bytes()) for path in files if path.is_file()}
    assert not {name: where for name, where in found.items() if where}


@pytest.mark.parametrize("folder", ["work", "root", "home", "Users"])
def test_places_are_found(folder):
    place = f"/{folder}/somebody/runs".encode()
    for before in (b"", b"see ", b"`", b"'", b"=", b":"):
        assert places(before + place) == [place]
    assert not places(b"https://host" + place) and not places(b"runs" + place) and not places(place + b"\0")
