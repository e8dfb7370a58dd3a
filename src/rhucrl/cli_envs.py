"""The commands about environments: is mine sound, and what does a policy look like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from rhucrl.errors import UsageError

RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]
Against = Literal["none", "learned", "worst"]


@dataclass(frozen=True)
class CheckEnv:
    """Tell in plain words what is wrong with an environment of your own."""

    env: Annotated[str, Positional, arg(metavar="MODULE:MAKE")]
    """A function that returns the environment, plain or wrapped; its module may lie in this folder."""
    steps: int = 500
    """Random steps to look at."""

    def run(self) -> int:
        if self.steps < 1:
            raise UsageError(f"--steps is {self.steps}; it must be at least 1")
        if ":" not in self.env:
            raise UsageError(f"{self.env!r} names no function: write module:make, the function that returns it")
        from rhucrl.envs import imported
        from rhucrl.envs.checks import Finding, check_env

        try:
            findings = check_env(imported(self.env), self.steps)
        except UsageError:
            raise
        except Exception as error:  # the user's own code may fail in any way
            findings = [Finding("wrong", f"{self.env} failed: {type(error).__name__}: {error}")]
        for finding in findings:
            print(f"{finding.kind}: {finding.text}")
        wrong = sum(finding.kind == "wrong" for finding in findings)
        print(f"{self.env}: {wrong} to repair" if wrong else f"{self.env}: nothing wrong in {self.steps} steps")
        return 2 if wrong else 0


@dataclass(frozen=True)
class Video:
    """Film a policy: RUN.mp4 and RUN.gif, with the adversary's forces as arrows."""

    run_dir: RunFolder
    """A run's or a policy's folder."""
    against: Against = "learned"
    """The adversary: nobody, the one that the policy learned with, or the worst of a quick attack."""
    output: Path | None = None
    """The film's file, whose ending is replaced; by default video in the run's folder."""
    seed: int = 0
    """Random seed of the episode."""
    seconds: float = 10.0
    """At most so much of the episode."""

    def run(self) -> int:
        if not self.seconds > 0:
            raise UsageError(f"--seconds is {self.seconds}; it must be more than 0")
        from rhucrl.compilation import enable_cache

        enable_cache()
        from rhucrl.experiments.video import film_run

        for path in film_run(self.run_dir, self.against, self.output, self.seed, self.seconds):
            print(path)
        return 0
