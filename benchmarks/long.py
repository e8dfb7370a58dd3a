"""What a long run costs: `rhucrl train half-cheetah --episodes 200 --profile`, and how its episodes compare.

    python benchmarks/long.py [--speed full] [--episodes 200] [--folder long-run]

The run is a process pinned to one core; CPU seconds and memory are the operating system's, everything included. An
interrupted run is lost to this measurement. Results are added to results/long.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from cost import measured

import rhucrl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", choices=("fast", "full"), default="fast")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--folder", default="long-run")
    parser.add_argument("--core", type=int, default=None)
    asked = parser.parse_args()
    options = ["--speed", asked.speed, "--episodes", str(asked.episodes), "--profile", "--run-dir", asked.folder]
    command = [sys.executable, "-m", "rhucrl.cli", "train", "half-cheetah", *options]
    cost = measured(command, None, asked.core)
    laps = [json.loads(line)["cpu"] for line in (Path(asked.folder) / "timing.jsonl").read_text().splitlines()]
    around = lambda episode: median(laps[episode - 5 : episode + 5])  # noqa: E731
    row = {
        "version": rhucrl.__version__, "options": options[:4], **cost,
        "late_by_early": around(asked.episodes - 5) / around(20),
        "profile": json.loads((Path(asked.folder) / "profile.json").read_text()),
    }  # fmt: skip
    with (Path(__file__).parent / "results" / "long.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row)


if __name__ == "__main__":
    main()
