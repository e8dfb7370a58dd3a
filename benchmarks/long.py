"""What a long run costs: `rhucrl train ENV ... --profile`, everything included, and how its episodes compare.

    python benchmarks/long.py half-cheetah --episodes 200
    python benchmarks/long.py inverted-pendulum --algo ppo --episodes 1000

What is not said here is passed on to `rhucrl train`. The run is a process pinned to one core; CPU seconds and memory
are the operating system's. An interrupted run is lost to this measurement. Results are added to results/long.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from cost import measured
from rows import source

NEAR = 5  # episodes to either side of one that is looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--core", type=int, default=None, help="where to run")
    asked, options = parser.parse_known_args()
    version = source()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = ["train", asked.env, *options, "--profile", "--run-dir", str(run)]
        cost = measured([sys.executable, "-m", "rhucrl.cli.main", *command], None, asked.core)
        laps = [json.loads(line)["cpu"] for line in (run / "timing.jsonl").read_text().splitlines()]
        profile = json.loads((run / "profile.json").read_text())

    def around(episode: int) -> float:
        return median(laps[episode - NEAR : episode + NEAR])

    row = {
        "source": version, "options": [asked.env, *options], **cost, "episodes": len(laps),
        "late_by_early": around(len(laps) - NEAR) / around(20), "profile": profile,
    }  # fmt: skip
    with (Path(__file__).parent / "results" / "long.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row)


if __name__ == "__main__":
    main()
