"""Frames of a film side by side: what a robot's policy looks like, for those who would rather see than read.

    python benchmarks/film_strip.py benchmarks/runs/policies/NAME docs/img/hopper-film.png [--seconds 3 4]

A film needs a way to draw without a screen, such as MUJOCO_GL=egl (docs/environments.md).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import imageio
import numpy as np
from PIL import Image

import rhucrl

FRAMES, WIDTH = 6, 200  # and the pixels that each frame has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--seconds", type=float, nargs=2, default=(3.0, 4.0), help="the first and the last frame's")
    given = parser.parse_args()
    agent = rhucrl.load(given.policy)
    with tempfile.TemporaryDirectory() as folder:
        film, _ = rhucrl.record(agent.env, agent, None, Path(folder) / "film", seconds=given.seconds[1] + 0.5)
        reader = imageio.get_reader(film)
        rate = reader.get_meta_data()["fps"]
        frames = [reader.get_data(round(rate * t)) for t in np.linspace(*given.seconds, FRAMES)]
    small = [Image.fromarray(frame).resize((WIDTH, WIDTH * frame.shape[0] // frame.shape[1])) for frame in frames]
    strip = Image.new("RGB", (WIDTH * FRAMES, small[0].height))
    for i, frame in enumerate(small):
        strip.paste(frame, (i * WIDTH, 0))
    strip.quantize(64).save(given.picture, optimize=True)
    print(f"{given.picture}: {given.picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
