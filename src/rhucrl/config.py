"""What is trained: a task, an algorithm, and the options of one model and one solver; importable without JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rhucrl import options
from rhucrl.algorithms import ALGORITHMS, EVERY, MODEL_FREE
from rhucrl.errors import UsageError, unknown
from rhucrl.options import LEARNERS, MODELS, PARTS, SOLVERS, Option, Options, option, options_of
from rhucrl.presets import Preset, numbers_of

FORMER = ("lanes", "broad", "innovations")  # options that the actor-critic had in earlier versions


@dataclass(frozen=True)
class TrainConfig:
    """The tree of a run's options. `TrainConfig.preset` builds it from names and numbers."""

    env: str = "pendulum"
    """The environment (see `rhucrl list envs`)."""
    setting: Literal["none", "adversarial", "action", "parameter"] = "adversarial"
    """The adversary's means: forces (pendulum: gravity and mass), a share of the action, an episode's mass, nothing."""
    strength: float | None = option(None, 0)
    """Strength of the adversary; pendulum: alpha in [0, 1), by default .2 (parameter: .8); robots: newtons, by default
    10 (action: alpha in [0, 1), .3; parameter: share of the range of masses in [0, 1], 1)."""
    scope: Literal["step", "episode"] | None = None
    """Whether the adversary acts at every step or once per episode; by default what the setting asks for."""
    mixture: Literal["noisy", "probabilistic"] | None = None
    """Action setting: (1 - alpha) a + alpha abar (noisy, the default), or abar with probability alpha."""
    parameters: str | None = None
    """Parameter setting of MuJoCo's: what the adversary chooses per episode, such as
    "torso_mass=0.1:3,floor_friction=0.1:3", or a set's name (rrls-2, rrls-3); by default one body's relative mass."""
    forces: str | None = None
    """Adversarial setting of MuJoCo's: bodies and axes that forces act on, such as "torso=xz,foot=x"; by default the
    robot's own (see `rhucrl list envs`)."""
    reward: Literal["dense", "sparse"] = "dense"
    """The pendulum's reward: dense, or only near the upright rest, minus the cost of the action."""
    action_cost: float | None = None
    """The pendulum's cost c of the squared action; by default .001 (sparse: .05)."""
    horizon: int | None = option(None, 1, 1_000_000)
    """Steps per episode; by default the environment's: 200 of the pendulum, 50 of the reacher, 1000 of the others."""

    algo: str = option("rh-ucrl", table=EVERY)
    """A row of the algorithm table (see `rhucrl list algos`)."""
    seed: int = option(0, 0, 2**32 - 1)
    """Seed of everything random."""
    episodes: int = option(30, 1, 1_000_000)
    """Episodes on the real system, the random ones included."""
    random_episodes: int = option(1, 1, 1_000_000)
    """Episodes of random actions at the start."""

    output_rule: Literal["robust", "paper"] = "robust"
    """The run's output: the policy whose J^(p) and returns hold up in later episodes, or (paper) the one with the
    largest J^(p) in its own episode."""

    model: Any = dataclasses.field(default_factory=options.Ensemble)
    """The options of the dynamics model; None of an algorithm without one."""
    solver: Any = dataclasses.field(default_factory=options.LookAhead)
    """The options of what finds the policies: of a solver in the model, or of a learner without one."""

    def __post_init__(self) -> None:
        options.check(self)
        if getattr(self.solver, "beta", 0) == "theory" and self.model.kind != "gp":
            raise UsageError(f"--beta theory is for --model gp: --model {self.model.kind} needs a number")
        row = MODEL_FREE.get(self.algo)
        if row is not None and self.setting not in row.settings:
            made = " or ".join(row.settings)
            raise UsageError(f"--algo {self.algo} is made for --setting {made}, not for {self.setting}")
        if row is not None and row.deterministic and self.scope == "episode":
            raise UsageError(f"--algo {self.algo} has an adversary that acts at every step: leave --scope out")

    @classmethod
    def preset(
        cls, env: str = "pendulum", preset: Preset = "standard", like: str | None = None, **given: Any
    ) -> TrainConfig:
        """The numbers of an environment (or of one that it is `like`) and an algorithm, and over them what is given.

        Options of the model and the solver are given by their names on the command line (`heads=7`), or as a part
        (`model=Ensemble(heads=7)`), of which only what was written counts. An option that nothing chosen here has is
        refused.
        """
        top = options_of(cls)
        algo = top["algo"].check(given.get("algo", cls.algo))
        numbers = numbers_of(like or env, algo, preset)
        kinds = _kinds(algo, {**numbers, **{part: given[part] for part in PARTS if given.get(part)}})
        if preset == "paper" and algo in ALGORITHMS and kinds["solver"] is not options.ActorCritic:
            raise UsageError("--preset paper has --solver actor-critic: leave one of them out")
        owned = {part: options_with(kind, algo) for part, kind in kinds.items()}
        for name in given:
            if name not in (*top, *PARTS, *owned["model"], *owned["solver"]):
                raise foreign(name, algo)
        if kinds["solver"] is options.OnPolicy and "random_episodes" in given:
            raise UsageError(f"--random-episodes is no option of --algo {algo}: it learns from its first episode on")
        if algo in MODEL_FREE and given.get("output_rule", cls.output_rule) != cls.output_rule:
            raise UsageError(f"--output-rule is no option of --algo {algo}: its output is the last policy")
        parts: dict[str, Any] = {}
        for part, kind in kinds.items():
            # else they are another's
            ours = algo in MODEL_FREE or kind in (options.Ensemble, SOLVERS[numbers["solver"]])
            values = {its.field: numbers[flag] for flag, its in owned[part].items() if ours and flag in numbers}
            if isinstance(its := given.get(part), Options):
                values |= {name: getattr(its, name) for name in its.given}
            values |= {its.field: given[flag] for flag, its in owned[part].items() if flag in given}
            parts[part] = kind(**values) if kind else None
        place = {name: value for name, value in {**numbers, **given}.items() if name in top}
        config = cls(**{"env": env, **place, **parts})
        if config.random_episodes > config.episodes:
            raise UsageError(f"--random-episodes is {config.random_episodes}; the run has {config.episodes} --episodes")
        return config

    def tree(self) -> dict[str, Any]:
        """As JSON has it: `model` and `solver` are objects that name their kind."""
        parts = {name: getattr(self, name) for name in PARTS}
        named = {name: its and {"kind": its.kind, **dataclasses.asdict(its)} for name, its in parts.items()}
        return {name: getattr(self, name) for name in options_of(type(self))} | named

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> TrainConfig:
        """The configuration that `tree` wrote, or the flat record of an earlier version, which had unused options."""
        top, algo = options_of(cls), tree.get("algo", cls.algo)
        earlier = isinstance(tree.get("model"), str)
        record = dict(tree) if earlier else flat(tree, FORMER)
        if lost := [name for name in record if name not in (*top, *PARTS, *every_option(), *FORMER)]:
            raise unknown("option", lost[0], [*top, *every_option()])
        if algo in MODEL_FREE:
            record |= {"model": None, "solver": None}
        elif record.get("solver") is None:
            record["solver"] = numbers_of(record.get("env", cls.env), algo)["solver"]
        parts: dict[str, Any] = {}
        for part, kind in _kinds(top["algo"].check(algo), record).items():
            owned = options_of(kind) if kind else {}
            values = {its.field: record[flag] for flag, its in owned.items() if flag in record}
            parts[part] = kind(**values) if kind else None
        return cls(**{name: record[name] for name in top if name in record}, **parts)


def _kinds(algo: str, given: Mapping[str, Any]) -> dict[str, type[Options] | None]:
    """The kind of model and solver that an algorithm has, of those that are given by name or as options."""
    if algo in MODEL_FREE:
        learner = MODEL_FREE[algo].learner
        if wrong := [part for part in PARTS if given.get(part) and _name(given[part]) != learner]:
            other = f"choose one of {', '.join(ALGORITHMS)}, or leave it out"
            raise UsageError(f"--{wrong[0]} is no option of --algo {algo}: {other}")
        return {"model": None, "solver": LEARNERS[learner]}
    return {"model": _kind("model", given.get("model", "ensemble"), MODELS),
            "solver": _kind("solver", given["solver"], SOLVERS)}  # fmt: skip


def _kind(part: str, given: Any, kinds: Mapping[str, type[Options]]) -> type[Options]:
    if (name := _name(given)) not in [*kinds]:  # which may be anything that a file holds
        raise unknown(part, str(name), kinds)
    return kinds[name]


def _name(part: Any) -> Any:
    return part.kind if isinstance(part, Options) else part


def options_with(kind: type[Options] | None, algo: str) -> dict[str, Option]:
    """The options of a part that an algorithm uses, by their names on the command line."""
    every = options_of(kind) if kind else {}
    return {flag: its for flag, its in every.items() if not its.rule.algos or algo in its.rule.algos}


def every_option() -> dict[str, list[type[Options]]]:
    """Whose the options of parts are, by their names on the command line."""
    owners: dict[str, list[type[Options]]] = {}
    for kind in (*MODELS.values(), *SOLVERS.values(), *LEARNERS.values()):
        for flag in options_of(kind):
            owners.setdefault(flag, []).append(kind)
    return owners


def foreign(name: str, algo: str) -> UsageError:
    """The mistake of giving an option that belongs to something that is not chosen."""
    owners = every_option()
    if name not in owners:
        return unknown("option", name, [*options_of(TrainConfig), *PARTS, *owners])
    homes: list[str] = []
    for kind in owners[name]:
        algos = options_of(kind)[name].rule.algos or [a for a, row in MODEL_FREE.items() if row.learner == kind.kind]
        part = "model" if kind.kind in MODELS else "solver"
        homes += [f"--algo {a}" for a in algos] if kind.kind in LEARNERS else [f"--{part} {kind.kind}"]
    return UsageError(
        f"--{name.replace('_', '-')} is an option of {' and '.join(homes)}, "
        f"which this run (--algo {algo}) does not use: leave it out, or choose that"
    )


def flat(tree: Mapping[str, Any], former: tuple[str, ...] = ()) -> dict[str, Any]:
    """A tree, or what somebody wrote of one, as options by their names on the command line; `former` ones left out."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in PARTS or not isinstance(value, Mapping):
            found[name] = value
            continue
        kind = _kind(name, value.get("kind"), MODELS if name == "model" else SOLVERS | LEARNERS)
        flags = {its.field: flag for flag, its in options_of(kind).items()}
        found[name] = kind.kind
        for field, its in value.items():
            if field in flags:
                found[flags[field]] = its
            elif field not in ("kind", *former):
                raise unknown(f"option of {kind.kind}", field, flags)
    return found
