"""The demonstration: a robust and a plain policy learn the pendulum, both are attacked, and a page shows it.

Each algorithm trains and is attacked in a process of its own, the optimum is computed in a third; what they find
meets in `results.json` and in the page `index.html`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rhucrl.config import TrainConfig
from rhucrl.errors import DiskError, UsageError
from rhucrl.experiments.figures import PendulumEpisode, RunSummary, label
from rhucrl.experiments.report import render, signed, write_page
from rhucrl.runtime import interrupts
from rhucrl.runtime.processes import run_side_by_side
from rhucrl.runtime.progress import Progress
from rhucrl.storage.trees import absolute, dump, explained, write_file

if TYPE_CHECKING:
    from rhucrl.training.agent import Agent

ALGORITHMS = ("rh-ucrl", "h-ucrl")
STRENGTH = 0.2
STRENGTHS = (0.0, 0.1, 0.2, 0.3)
GRID = 200  # of the oracle: coarse, for seconds instead of minutes
OPTIMUM = "optimum"

TITLE = "A robust pendulum"
LEAD = (
    "Two agents learned to swing up a pendulum whose torque is too weak to lift it directly. An adversary may change "
    f"gravity and mass by up to {STRENGTH:.0%} at every step. RH-UCRL expected it while learning, H-UCRL did not."
)


class DemoPlan(NamedTuple):
    """What each process is started with: options of training, the attacks (by default all), the oracle's grid."""

    training: dict[str, Any]
    only: Sequence[str] = ()
    grid: int = GRID

    def config(self, strength: float, algorithm: str = "rh-ucrl") -> TrainConfig:
        return TrainConfig.preset(strength=strength, algo=algorithm, **self.training)

    def game(self, strength: float) -> Any:
        from rhucrl.training.loop import env_of

        return env_of(self.config(strength)).game


def demo(
    folder: str | Path = "demo", seed: int = 0, episodes: int = 24, only: Sequence[str] = (), grid: int = GRID,
    **options: Any,
) -> Path:  # fmt: skip
    """Train, attack and compare RH-UCRL and H-UCRL; print the table and write the page, whose path is returned.

    `only` names some of the attacks, and the other options are those of training: both make it quicker to try out.
    """
    started, folder = time.monotonic(), absolute(folder)
    plan = DemoPlan({"seed": seed, "episodes": episodes, **options}, only, grid)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    parts = [*ALGORITHMS, OPTIMUM]
    start = [sys.executable, "-m", __name__]
    codes = run_side_by_side({part: [*start, part, str(folder), json.dumps(plan)] for part in parts})
    if failed := [part for part in parts if codes[part]]:
        print(f"{' and '.join(failed)} failed; the messages are above", file=sys.stderr)
        raise SystemExit(max(codes.values()))
    summaries = [RunSummary.from_json(_read(folder, algorithm)) for algorithm in ALGORITHMS]
    oracle = dict(_read(folder, OPTIMUM))
    _print_table(summaries, oracle[STRENGTH])
    attacks = ", ".join(f"{run.attack} ({label(run.algorithm)})" for run in summaries)
    facts = {
        "seed": str(seed),
        "episodes": f"{episodes} of {summaries[0].metrics[0]['steps']} steps for each algorithm",
        "attack": f"quick budget; the worst found by {attacks}",
        "optimum": f"dynamic programming on a grid of {grid} angles and {grid + 1} velocities",
        "wall time": f"{time.monotonic() - started:.0f} s",
    }
    results = {"strength": STRENGTH, "optimum": oracle[STRENGTH], "oracle": list(oracle.items()), "facts": facts,
               "runs": [dataclasses.asdict(summary) for summary in summaries]}  # fmt: skip
    with explained(folder):
        write_file(folder / "results.json", dump(results))
        for part in parts:  # all that they say is in the results
            (folder / f"{part}.json").unlink()
    found = " and ".join(f"{label(run.algorithm)} {signed(run.worst)}" for run in summaries)
    lead = f"{LEAD} Worst returns found: {found}; the best possible worst case is {signed(oracle[STRENGTH])}."
    page = write_page(folder, render(TITLE, summaries, oracle, lead, STRENGTH, facts))
    print(f"{page} shows the curves and both policies under attack ({time.monotonic() - started:.0f} s)")
    return page


def run_algorithm(algorithm: str, folder: Path, plan: DemoPlan) -> RunSummary:
    """Train one algorithm and attack its output policy at every strength."""
    import jax

    from rhucrl.attacks.rollouts import mean_return
    from rhucrl.attacks.worst_case import worst_case
    from rhucrl.storage.runs import Run

    config = plan.config(STRENGTH, algorithm)
    seed, episodes = config.seed, config.episodes
    game, attacked = plan.game(STRENGTH), [strength for strength in STRENGTHS if strength]
    with Progress(episodes + len(attacked), label(algorithm)) as progress:
        progress.update(0, "starting")
        agent = _learn(config, folder, progress)
        policy, cases = agent.policy, {}
        for i, strength in enumerate(attacked):
            progress.update(episodes + i, f"attacking at strength {strength:g}")
            cases[strength] = worst_case(policy, plan.game(strength), "quick", seed, only=plan.only)
        found = cases[STRENGTH]
        keys = jax.random.split(jax.random.key(seed), 1)
        average = float(mean_return(game, policy, agent.adversary, keys))
        progress.update(progress.total, f"worst case {found.worst:.0f}")
    sweep = [(s, cases[s].worst if s else found.nominal) for s in STRENGTHS]
    judged = found.nominal, average, found.worst, found.attack, sweep
    return RunSummary(algorithm, seed, Run.open(folder).metrics(), *judged, _episode(game, policy, found.adversary))


def _learn(config: TrainConfig, folder: Path, progress: Progress) -> Agent:
    """The agent of a new run in `folder`, or of the one that an earlier demonstration left there."""
    from rhucrl import load
    from rhucrl.storage.runs import Run
    from rhucrl.training import loop as training

    if not (folder / "config.json").exists():
        training.train(config, folder, progress)
    elif training.config_of(folder, Run.open(folder).config) == config:
        training.resume(folder, progress=progress)
    else:
        raise UsageError(f"{folder} holds a run with other settings: remove it or choose another folder")
    return load(folder)


def solve_oracle(plan: DemoPlan) -> list[tuple[float, float]]:
    """The value of the true game at every strength: what no policy can beat."""
    from rhucrl.attacks.oracle import solve

    values = []
    with Progress(len(STRENGTHS), OPTIMUM) as progress:
        for i, strength in enumerate(STRENGTHS):
            progress.update(i, f"dynamic programming at strength {strength:g}")
            values.append((strength, solve(plan.game(strength), plan.grid).value))
        progress.update(len(STRENGTHS), "done")
    return values


def _episode(game: Any, policy: Any, adversary: Any) -> PendulumEpisode:
    import jax
    import numpy as np

    from rhucrl.attacks.rollouts import rollout
    from rhucrl.envs.pendulum import DT, GRAVITY, MASS

    played = rollout(game, policy, adversary, jax.random.key(0))
    gravity, mass = game.physics(played.adversary)
    angle = np.unwrap(np.arctan2(played.obs[:, 1], played.obs[:, 0]))
    columns = (angle, played.executed[:, 0], GRAVITY * gravity, MASS * mass, played.reward)
    return PendulumEpisode(DT, *([round(float(x), 4) for x in column] for column in columns))


def _read(folder: Path, part: str) -> Any:
    with explained(folder):
        return json.loads((folder / f"{part}.json").read_bytes())


def _print_table(runs: Sequence[RunSummary], optimum: float) -> None:
    from rhucrl.runtime.tables import print_table

    head = ("algorithm", "nominal", "average", "worst case", "optimum")
    rows = []
    for run in runs:
        returns = run.nominal, run.average, run.worst, optimum
        rows.append((label(run.algorithm), *(f"{x:.1f}" for x in returns)))
    print_table(f"Return on the adversarial pendulum, strength {STRENGTH:g}", head, rows)
    print("average: against the adversary of training (H-UCRL has none); optimum: the best worst case there is")


def main(part: str, folder: str, arguments: str) -> int:
    """One process of the demonstration."""
    from rhucrl.runtime.compilation import enable_cache

    enable_cache()
    place, plan = Path(folder), DemoPlan(*json.loads(arguments))
    try:
        if part == OPTIMUM:
            found: Any = solve_oracle(plan)
        else:
            found = dataclasses.asdict(run_algorithm(part, place / "runs" / part, plan))
        with explained(place):
            write_file(place / f"{part}.json", dump(found))
    except (UsageError, DiskError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(interrupts.run(lambda: main(*sys.argv[1:])))
