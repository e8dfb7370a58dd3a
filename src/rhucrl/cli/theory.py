"""The commands about the theory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitSubcommandPrefixes, subcommand

from rhucrl.cli.attack import RunFolder
from rhucrl.cli.mistakes import demand_folder, demand_least
from rhucrl.errors import UsageError
from rhucrl.runtime.tables import print_table


@dataclass(frozen=True)
class Verify:
    """Hold the theory against games that satisfy its assumptions.

    Draws games on a line whose dynamics lie in the kernel's space with a known norm, plays RH-UCRL with exact planning
    on each, and counts how often every inequality of the analysis was tested and how often it failed: coverage of
    beta_t sigma over all states, actions and episodes at once (it may fail in a share of delta of the draws),
    J^(p) <= J(f) <= J^(o), the bounds on information gain, Gamma_T and regret. It also says how the regret grows: a
    slope below 1 of its logarithm against that of T is a regret that becomes negligible.

    Exit code 1 if an inequality failed, or if so many intervals failed that delta cannot be the reason.
    """

    game: Literal["drawn", "linear-quadratic"] = "drawn"
    """Dynamics that are drawn, or s + a / 2 + abar / 4 with quadratic costs: its saddle point is known in closed form,
    the kernel is linear, the norm is that of these dynamics, and what is drawn is the noise."""
    kernel: Literal["linear", "squared-exponential", "sum", "product"] = "squared-exponential"
    """The kernel whose space the dynamics lie in."""
    lengthscale: float = 3.0
    """Its length scale; states and actions lie in [-1, 1]."""
    norm: float = 1.0
    """B_f: the norm of the dynamics."""
    noise: float = 0.1
    """sigma: the noise is sigma or -sigma, by a coin."""
    delta: float = 0.1
    """The probability that the intervals may fail with."""
    horizon: int = 3
    """Steps per episode; lambda is as large."""
    episodes: int = 300
    """Episodes of every draw."""
    draws: int = 50
    """Games that are drawn."""
    seed: int = 0
    """Seed of everything random."""
    output: Path | None = None
    """Write all results there as JSON."""

    def run(self) -> int:
        demand_least(self, norm=1e-9, noise=0, lengthscale=1e-9, horizon=1, episodes=4, draws=2, seed=0)
        if not 0 < self.delta < 1:
            raise UsageError(f"--delta is {self.delta}; it must lie between 0 and 1")
        demand_folder(self.output)
        from rhucrl.runtime.progress import Progress
        from rhucrl.storage.trees import dump
        from rhucrl.theory.verify import Setup, verify

        given = {name: getattr(self, name) for name in Setup.__dataclass_fields__}
        setup = Setup(**given) if self.game == "drawn" else Setup.linear_quadratic(**given)
        with Progress(self.draws, "theory verify") as progress:
            found = verify(setup, progress)
        if self.output:
            self.output.write_bytes(dump(found, 1) + b"\n")
        return self._show(found)

    def _show(self, found: dict[str, Any]) -> int:
        cover, regret = found["coverage"], found["regret"]

        def interval(x: dict[str, float], form: str = ".3f") -> str:
            return f"{x.get('value', x.get('share')):{form}}  [{x['low']:{form}}, {x['high']:{form}}]"

        rows = [(f"|f - mu| <= {w['width']:g} beta_t sigma", f"{w['held']} of {cover['draws']}", interval(w))
                for w in ({**cover}, *cover["narrower"])]  # fmt: skip
        title = f"intervals that held at every state, action and episode (asked: {cover['asked']:g} of the draws)"
        print_table(title, ("interval", "draws", "share, 95 % interval"), rows)
        rows = [(r["inequality"], str(r["tested"]), str(r["failed"]), f"{r['to_spare']:.3g}")
                for r in found["inequalities"]]  # fmt: skip
        print_table("episodes", ("inequality", "tested", "failed", "least to spare"), rows)
        quarters = [(name.replace("_", " "), interval(regret[name], ".4f")) for name in
                    ("first_quarter", "last_quarter", "difference")]  # fmt: skip
        print_table("robust regret per episode", ("episodes", "mean over draws, 95 % interval"), quarters)
        if saddle := found.get("saddle"):
            closed = saddle["closed_form"]["value"], saddle["closed_action"], saddle["closed_answer"]
            learned = (interval(saddle[name]) for name in ("worst_case", "action", "answer"))
            names = ("worst case of the output policy", "agent's first action", "adversary's first action")
            rows = [(name, f"{a:.3f}", b) for name, a, b in zip(names, closed, learned, strict=True)]
            print_table("saddle point", ("", "closed form", "learned, 95 % interval"), rows)
        shown = "below 1" if regret["slope"]["high"] < 1 else "not shown to be below 1 by so few draws and episodes"
        print(f"R_T grows as T to the power of {interval(regret['slope'])} over the last half: {shown}")
        broken = [r["inequality"] for r in found["inequalities"] if r["failed"]]
        if cover["high"] < cover["asked"]:
            broken.append("coverage")
        print(f"failed: {', '.join(broken)}" if broken else "no inequality failed")
        return 1 if broken else 0


@dataclass(frozen=True)
class Plot:
    """Draw the theory's quantities of a run with --model gp, episode by episode, beside what happened."""

    run_dir: RunFolder
    """The run's folder."""
    output: Path | None = None
    """The picture; by default theory.png in the run's folder."""

    def run(self) -> int:
        from rhucrl.experiments.plots import plot_theory
        from rhucrl.storage.runs import Run

        run = Run.open(self.run_dir)
        rows = run.metrics()
        if not rows or "information_gain" not in rows[-1]:
            raise UsageError(f"{self.run_dir} has no theory to plot: train with --model gp")
        print(plot_theory(self.output or Path(self.run_dir) / "theory.png", rows, run.config))
        return 0


@dataclass(frozen=True)
class Theory:
    """Hold the theory against games that satisfy its assumptions, or look at what it says about a run."""

    command: OmitSubcommandPrefixes[Annotated[Verify, subcommand("verify")] | Annotated[Plot, subcommand("plot")]]

    def run(self) -> int:
        return self.command.run()
