"""docs/speed.md, made of the files in benchmarks/results: `python benchmarks/speed_tables.py`."""

from __future__ import annotations

import json

from rows import RESULTS, read
from tables import DOCS, table

HEAD = """# Speed

`python benchmarks/speed_tables.py` writes this page. `rhucrl bench --peers --output benchmarks/results/bench.json`
measures the pieces, `python benchmarks/long.py` the long runs, `python benchmarks/fit.py` the fits. Times are CPU
time on one core.
"""
PIECES = """## The pieces

An *update* is one gradient step of both problems of RH-UCRL: the agent's problem and the response. The pieces were
measured when a robot's model had two layers of 200, and not yet three of 160; what whole runs of today cost is in
[robots.md](robots.md).

- *Half-cheetah.* The update has the sizes of the default run: 18 observations, 6 actions and 6 forces, five members of
  200-200, policies, eta and four critics of 200-200, five differentiated steps. It includes its share of the rollouts
  that start states come from. A *lane* is a rollout of one start state against one adversary. The agent's problem has
  64 start states with four lanes each: the network, two held extremes, and nobody. The response has 256 rollouts.
- *1 lane.* Both problems have 256 start states, against the network alone.
- *Pendulum.* The time includes the update's share of the rollouts that are made once per episode. Its GFLOP do not.
- *GFLOP* are those of all products of matrices that the program asks for. The *peak* is that of a product of 1024 x
  1024 matrices in the same run.

What an update took before is in [attempts.md](attempts.md).
"""
LONG = """## Long runs

Each row is `python benchmarks/long.py` with the row's options: `rhucrl train` with them on one core, everything
included.

- *Late by early* is the CPU time of an episode near the end, divided by that of one near the twentieth. (An
  inverted pendulum that learns plays longer episodes.)
- Other work ran on the machine's other core, and now and then on this one.
"""
FIT = """## The fit of a robot's model

What the ensemble of robots is fitted with, beside variants of it. The model of each variant follows the same run of
H-UCRL with the defaults, and is judged by episodes that no fit has seen. Seed 0 chose the defaults with an earlier
version of this table, so it describes them and is no evidence.

- *Median step*, *all steps*: the error of the median step and the root mean square over all, in units of the standard
  deviation of the changes. A few steps, falls above all, make the second one large.
- *Ten steps*: the error after ten predictions in a row, of the median start.
"""
GPU = """## Graphics cards

Nothing in the code assumes a CPU. JAX's own installation for a card (`pip install "jax[cuda12]"`) is all that
should be needed. No card was at hand: this has not been tried, and no figure is claimed.

What to expect: an update is a chain of products of 100 x 200 matrices, too small to keep a card busy. A card would
be good for a larger `--batch` and `--width`. Episodes on robots are played in NumPy and MuJoCo on the host either
way. Values are fetched from the device a number of times per episode that does not grow with its length
(`tests/test_speed.py` counts them).

## Several seeds

`rhucrl train ENV --seeds 0 1 2` runs one process per core, each pinned to its core. Several seeds in one program
were measured to be slower (`benchmarks/seeds.py`).
"""


def cell(row: dict, name: str, form: str) -> str:
    return form.format(row[name]) if row.get(name) is not None else ""


def pieces(result: dict) -> str:
    rows = [
        [row["piece"], f"{row['cpu_ms']:.2f}", cell(row, "gflop", "{:.3f}"), cell(row, "share_of_peak", "{:.0%}")]
        for row in result["pieces"]
    ]
    machine = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    told = f"Medians of {result['rounds']} rounds; peak {result['peak_gflops']:.0f} GFLOP/s; {machine}."
    starting = [[name, f"{seconds:.2f}"] for name, seconds in result["starting"].items()]
    cold, warm = result["compile_cold"], result["compile_warm"]
    compiled = [[name, f"{cold[name]:.1f}", f"{warm[name]:.1f}"] for name in cold]
    parts = [
        table("piece | CPU ms | GFLOP | of the peak", rows), told + "\n",
        table("process | CPU seconds", starting),
        table("program of HalfCheetah | compiled, cold cache, CPU seconds | warm", compiled),
    ]  # fmt: skip
    if "peers" in result:
        speeds = [[r["algo"], r["task"], r["library"], f"{r['steps_per_cpu_second']:.0f}"] for r in result["peers"]]
        head = "algorithm | task | library | environment steps per CPU second, equal sizes and gradient steps"
        parts += ["Beside other libraries, measured with an earlier version:\n", table(head, speeds)]
    return "\n".join(parts)


PARTS = ("solving", "evaluating", "collecting", "fitting", "checkpointing", "compiling", "other")


def long(rows: list[dict]) -> str:
    lines = [
        [" ".join(row["options"]), f"{row['cpu_seconds'] / 60:.1f}", f"{row['peak_mb']:.0f}",
         f"{row['late_by_early']:.2f}", *shares({name: row["profile"].get(name, 0.0) for name in PARTS})]
        for row in rows
    ]  # fmt: skip
    names = " | ".join(PARTS)
    return table(f"options | CPU minutes | peak MB | late by early | {names}", lines)


def shares(profile: dict[str, float]) -> list[str]:
    return [f"{seconds / sum(profile.values()):.1%}" for seconds in profile.values()]


def fits(rows: list[dict]) -> str:
    lines = [
        [row["env"], row["variant"], *(f"{row[name]:.3f}" for name in ("median", "rms", "ten")), f"{row['cpu']:.1f}"]
        for row in rows
    ]
    return table("robot | fitted with | median step | all steps | ten steps | CPU seconds a fit", lines)


def write() -> None:
    load = lambda name: json.loads(path.read_text()) if (path := RESULTS / name).exists() else None  # noqa: E731
    parts = [HEAD]
    if result := load("bench.json"):
        parts += [PIECES, pieces(result)]
    if rows := read("long"):
        parts += [LONG, long(rows)]
    if result := load("fit.json"):
        parts += [FIT, fits(result["rows"])]
    (DOCS / "speed.md").write_text("\n".join([*parts, GPU]))


if __name__ == "__main__":
    write()
