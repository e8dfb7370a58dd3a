"""The commands about environments: is one's own sound, and what does a policy look like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from rhucrl.attacks.subject import Subject
from rhucrl.cli.mistakes import demand_least
from rhucrl.errors import UsageError, unknown

AGAINST = ("none", "learned", "worst")


@dataclass(frozen=True)
class CheckEnv:
    """Tell in plain words what is wrong with an environment of your own."""

    env: Annotated[str, Positional, arg(metavar="MODULE:MAKE")]
    """A function that returns the environment, plain or wrapped; its module may lie in this folder."""
    steps: int = 500
    """Random steps to look at."""

    def run(self) -> int:
        demand_least(self, steps=1)
        if ":" not in self.env:
            raise UsageError(f"{self.env!r} names no function: write module:make, the function that returns it")
        from rhucrl.envs import imported
        from rhucrl.envs.check_env import Finding, check_env

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
class Video(Subject):
    """Film a policy: RUN/video-ADVERSARY.mp4 and .gif, with the adversary's forces as arrows."""

    against: tuple[str, ...] = ()
    """The adversaries, a film for each: none, learned (the one with which the policy learned; the default where there
    is one), worst (of a quick attack), or a folder in which `rhucrl attack --save` saved one."""
    output: Path | None = None
    """The film's file, whose ending is replaced (of several films: followed by each adversary's name); by default
    video-ADVERSARY in the run's folder, or in this one."""
    seed: int = 0
    """Random seed of the episode."""
    seconds: float = 10.0
    """At most so much of the episode."""

    def run(self) -> int:
        if not self.seconds > 0:
            raise UsageError(f"--seconds is {self.seconds}; it must be more than 0")
        for one in self.against:
            if one not in AGAINST and not Path(one).is_dir():
                raise unknown("adversary", one, AGAINST)
        names = [Path(one).name for one in self.against]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"two adversaries are called {twice.pop()}: film one at a time, each with its --output")
        from rhucrl.experiments.video import demand_imageio, film

        demand_imageio()  # before anything that takes time
        from rhucrl.attacks.battery import learned_with_somebody

        policy, env = self.meet()
        against = self.against or ("learned" if learned_with_somebody(policy) else "none",)
        folder = Path(self.policy) if self.env is None else Path()
        for one in against:
            named = (self.output or folder / "video").with_suffix("")
            if self.output is None or len(against) > 1:
                named = named.with_name(f"{named.name}-{Path(one).name}")
            for path in film(policy, env, one, named, self.seed, self.seconds, Path(self.policy).stem):
                print(path, flush=True)
        return 0
