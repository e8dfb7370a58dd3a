"""Whom an attack, an evaluation or a film is about: a policy and its environment, as a command line names them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from rhucrl.envs import PLACE, Mixture, Scope, Setting
from rhucrl.errors import UsageError

if TYPE_CHECKING:
    from rhucrl.envs.zero_sum_env import ZeroSumEnv


@dataclass(frozen=True)
class Subject:
    """A policy and its environment."""

    policy: Annotated[str, Positional, arg(metavar="RUN")]
    """A run's or a policy's folder; with --env also a .zip of Stable-Baselines3 or SBX, an .onnx file, module:function,
    which returns a policy; lqr or cascade, the controllers made for inverted-pendulum; or planner, which plans in the
    environment's own dynamics."""
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
    parameters: str | None = None
    """In the parameter setting: what the adversary chooses (see `rhucrl train hopper --setting parameter --help`)."""
    forces: str | None = None
    """In the adversarial setting: bodies and axes that forces act on, such as torso=xz,foot=x."""
    trust: bool = False
    """Run the code that a file names or holds: the environment of a run of one's own, a .zip of Stable-Baselines3."""
    budget_ms: float | None = None
    """A planner's milliseconds per step, instead of a number of rounds: returns then depend on the machine."""

    def meet(self) -> tuple[Any, ZeroSumEnv]:
        """The policy and its environment; an agent, if it is one of ours."""
        place = {name: getattr(self, name) for name in PLACE}
        given = [f"--{name}" for name, value in place.items() if value is not None]
        if self.env is None and given:
            raise UsageError(f"{given[0]} belongs to --env: name the environment too, or leave it out")
        from rhucrl.runtime.compilation import enable_cache

        enable_cache()
        from rhucrl.attacks.foreign import FILES, load_policy
        from rhucrl.envs import make
        from rhucrl.envs.stored import is_own
        from rhucrl.training.agent import load, stored_config

        if self.env is None:
            if ":" in self.policy or Path(self.policy).suffix in FILES:
                raise UsageError(f"{self.policy} does not say where it plays: name its environment with --env")
            agent = load(self.policy, trust=self.trust)
            return in_time(agent, agent.env, self.budget_ms), agent.env
        if Path(self.policy).is_dir() and not given and is_own((stored := stored_config(self.policy)).env):
            place = {name: getattr(stored, name) for name in PLACE}
        env = make(self.env, **{**place, "setting": place["setting"] or "adversarial"})
        return in_time(load_policy(self.policy, env, self.trust), env, self.budget_ms), env


def in_time(policy: Any, env: ZeroSumEnv, budget_ms: float | None) -> Any:
    """The policy; with a budget, it has to plan, and does so as long as that allows."""
    if budget_ms is None:
        return policy
    from rhucrl.solvers.planner.controller import Planner
    from rhucrl.solvers.planner.search import Planning

    planning: Any = getattr(policy, "policy", None)
    if not isinstance(planning, Planning):
        raise UsageError("--budget-ms is for planners: name `planner`, or a run with --solver planner, or leave it out")
    return Planner.of(env, planning, budget_ms)
