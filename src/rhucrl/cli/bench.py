"""The command about speed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhucrl.cli.mistakes import demand_folder, demand_least
from rhucrl.runtime.processes import own_cores, pin
from rhucrl.runtime.tables import print_table


@dataclass(frozen=True)
class Bench:
    """Measure what the pieces of a run cost on one core of this machine, in CPU seconds (about five minutes)."""

    rounds: int = 5
    """How often each piece is timed; medians are shown."""
    peers: bool = False
    """Time SAC and PPO of SBX and Stable-Baselines3 too, in an environment of their own, which is made at first."""
    output: Path | None = None
    """Write the results there as JSON."""

    def run(self) -> int:
        demand_least(self, rounds=1)
        demand_folder(self.output)
        pin(0, own_cores()[-1])  # before JAX counts the cores
        from rhucrl.experiments.bench import bench
        from rhucrl.runtime.compilation import enable_cache
        from rhucrl.runtime.progress import Progress
        from rhucrl.storage.trees import dump

        enable_cache()
        with Progress(self.rounds + 2, "bench") as progress:
            result = bench(self.rounds, self.peers, progress)
        if self.output:
            self.output.write_bytes(dump(result, 1) + b"\n")
        self._show(result)
        return 0

    def _show(self, result: dict[str, Any]) -> None:
        def of(row: dict[str, Any], name: str, form: str) -> str:
            return form.format(row[name]) if row.get(name) is not None else ""

        rows = [
            (row["piece"], f"{row['cpu_ms']:.2f}", of(row, "gflop", "{:.3f}"), of(row, "share_of_peak", "{:.0%}"))
            for row in result["pieces"]
        ]
        print_table("one core, medians", ("piece", "CPU ms", "GFLOP", "of the peak"), rows)
        starts = [(name, f"{seconds:.2f}") for name, seconds in result["starting"].items()]
        print_table(None, ("process", "CPU seconds"), starts)
        cold, warm = result["compile_cold"], result["compile_warm"]
        compiled = [(name, f"{cold[name]:.1f}", f"{warm[name]:.1f}") for name in cold]
        print_table("half-cheetah's programs, CPU seconds of compiling", ("program", "cold", "warm"), compiled)
        if "peers" in result:
            peers = [(r["algo"], r["task"], r["library"], f"{r['steps_per_cpu_second']:.0f}") for r in result["peers"]]
            print_table(None, ("algorithm", "task", "library", "steps per CPU second"), peers)
        print(f"peak {result['peak_gflops']:.0f} GFLOP/s, memory of this process {result['peak_mb']:.0f} MB at most")
