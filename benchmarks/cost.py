"""What a default run costs: CPU seconds and peak memory of `rhucrl train`, with a cold and with a warm cache.

    python benchmarks/cost.py [--episodes 30]

Each run is a process pinned to one core; its figures are the operating system's. Results go to results/cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path


def measured(command: list[str], environment: dict[str, str] | None, core: int | None = None) -> dict[str, float]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0)) if core is None else core})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {"cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=30)
    episodes = parser.parse_args().episodes
    result: dict[str, object] = {
        "episodes": episodes,
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"}
        for name in ("cold", "warm"):
            options = ["--episodes", str(episodes), "--run-dir", f"{folder}/{name}"]
            result[name] = measured(
                [sys.executable, "-m", "rhucrl.cli.main", "train", "pendulum", *options], environment
            )
            print(name, result[name], flush=True)
        rows = [json.loads(line) for line in Path(f"{folder}/warm/timing.jsonl").read_text().splitlines()]
        result["warm_compile_seconds"] = sum(row["compile"] for row in rows)
    path = Path(__file__).parent / "results" / "cost.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
