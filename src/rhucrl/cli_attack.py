"""The commands that judge a policy: play it, and search for its worst adversary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from rhucrl.envs import Mixture, Scope, Setting
from rhucrl.errors import UsageError

if TYPE_CHECKING:
    from rhucrl.envs.face import ZeroSumEnv
    from rhucrl.evaluation.attack import WorstCase

Budget = Literal["quick", "standard", "thorough"]
RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]
PLACE = ("setting", "strength", "scope", "mixture", "horizon")


@dataclass(frozen=True)
class Subject:
    """A policy and its environment."""

    policy: Annotated[str, Positional, arg(metavar="RUN")]
    """A run's or a policy's folder; with --env also module:function, which returns a policy, or lqr or cascade, the
    controllers made for inverted-pendulum."""
    env: str | None = None
    """The environment, where the policy has none of its own or shall play in another one."""
    setting: Setting | None = None
    """What the adversary may do in --env; by default adversarial."""
    strength: float | None = None
    """The adversary's strength in --env; by default the setting's."""
    scope: Scope | None = None
    """Whether the adversary acts at every step or once per episode; by default what the setting asks for."""
    mixture: Mixture | None = None
    """In the action setting: noisy (the default) or probabilistic."""
    horizon: int | None = None
    """Steps per episode; by default the environment's."""

    def meet(self) -> tuple[Any, ZeroSumEnv]:
        """The policy and its environment; an agent, if it is one of ours."""
        place = {name: getattr(self, name) for name in PLACE}
        given = [f"--{name}" for name, value in place.items() if value is not None]
        if self.env is None and given:
            raise UsageError(f"{given[0]} belongs to --env: name the environment too, or leave it out")
        from rhucrl.compilation import enable_cache

        enable_cache()
        import rhucrl
        from rhucrl.envs import imported, make

        if self.env is None:
            from rhucrl import training

            agent = rhucrl.load(self.policy)
            return agent, training.env_of(agent.config)
        env = make(self.env, **{**place, "setting": self.setting or "adversarial"})
        if ":" in self.policy:
            return imported(self.policy), env
        if Path(self.policy).is_dir():
            return rhucrl.load(self.policy), env
        from rhucrl.evaluation.reference import reference

        return reference(self.policy, env), env


@dataclass(frozen=True)
class Evaluate:
    """Play a policy: alone, against the adversary it learned with, and against a quick attack."""

    run_dir: RunFolder
    """A run's or a policy's folder."""
    seed: int = 0
    """Random seed of the evaluation."""
    episodes: int = 10
    """Episodes to average over."""

    def run(self) -> int:
        agent, env = Subject(str(self.run_dir)).meet()
        found = attacked(str(self.run_dir), agent, env, "quick", self.seed)
        rows = {"none": found.nominal}
        if getattr(agent, "adversary", None) is not None:  # a policy alone has none
            rows["the one it learned with"] = self._average(agent, env)
        print_returns(str(self.run_dir), rows | {"the worst of a quick attack": found.worst})
        return 0

    def _average(self, agent: Any, env: ZeroSumEnv) -> float:
        import jax

        from rhucrl.envs.game import JaxGame

        if not isinstance(env.game, JaxGame):
            from rhucrl.evaluation import host

            arena = host.Arena(agent, env)
            return arena.mean_return(jax.jit(agent.adversary), host.seeds(self.seed, 1, self.episodes))
        from rhucrl.evaluation.rollouts import mean_return

        keys = jax.random.split(jax.random.key(self.seed), self.episodes)
        return float(mean_return(env.game, agent.policy, agent.adversary, keys))


@dataclass(frozen=True)
class Attack(Subject):
    """Search for the adversary that hurts a policy most."""

    budget: Budget = "standard"
    """How long to search."""
    seed: int = 0
    """Random seed of the search."""
    save: Path | None = None
    """A folder for the adversaries that were found; `rhucrl video --against FOLDER/NAME` plays one again."""

    def run(self) -> int:
        policy, env = self.meet()
        found = attacked(self.policy, policy, env, self.budget, self.seed)
        print_returns(self.policy, {"none": found.nominal, **found.attacks, "the worst of these": found.worst})
        if self.save is not None:
            for name, adversary in found.adversaries.items():
                if not hasattr(adversary, "save"):
                    raise UsageError(f"adversaries of {self.env or 'this environment'} cannot be saved: omit --save")
                adversary.save(self.save / name)
            print(f"{self.save} holds the adversaries; {found.attack} is the worst")
        return 0


def attacked(label: str, policy: Any, env: ZeroSumEnv, budget: Budget, seed: int) -> WorstCase:
    """The worst case, its progress shown."""
    from rhucrl.evaluation.attack import rounds, worst_case
    from rhucrl.progress import Progress

    with Progress(rounds(env, budget), f"attack {label}") as progress:
        return worst_case(policy, env, budget, seed, progress)


def print_returns(title: str, returns: Mapping[str, Any]) -> None:
    print_table(title, ("adversary", "return"), [(name, f"{float(value):.1f}") for name, value in returns.items()])


def print_table(title: str | None, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if name == "return" else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
