"""What can be chosen of each part of a run: every model, solver and learner owns its options; importable without JAX.

An option has a default, a range, and a name on the command line, which is the field's own unless it says otherwise
(`model_width` of `Ensemble.width`). Numbers are finite, always.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from rhucrl.errors import UsageError, unknown

POSITIVE = 5e-324  # the least number above 0
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class Rule(NamedTuple):
    """What an option may be (in a range, in a table), its name on the command line, its algorithms (none: all)."""

    low: float = -math.inf
    high: float = math.inf
    flag: str | None = None
    algos: tuple[str, ...] = ()
    table: Mapping[str, Any] | None = None


def option(default: Any, low: float = -math.inf, high: float = math.inf, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"rule": Rule(low, high, **more)})


class Option(NamedTuple):
    """A field of a dataclass of options."""

    field: str
    flag: str
    declared: Any
    default: Any
    rule: Rule

    @property
    def hint(self) -> Any:
        """Its type; of a name, those that the table has by now."""
        return self.declared if self.rule.table is None else Literal[tuple(self.rule.table)]

    def check(self, value: Any) -> Any:
        """The value, if it is one: of the right kind, finite, and within its range."""
        name = "--" + self.flag.replace("_", "-")
        if isinstance(value, list):  # JSON knows no tuples
            value = tuple(value)
        if not _fits(value, self.hint):
            words, parts = _words(self.hint), _parts(self.hint)
            if isinstance(value, str) and all(_words(part) for part in parts):
                raise unknown(self.flag.replace("_", "-"), value, words)
            kinds = [KINDS.get(part, "several numbers") for part in parts if not _words(part)]
            raise UsageError(f"{name} is {value!r}; it must be {' or '.join([*kinds, *map(repr, words)])}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, numbers.Real) and not isinstance(number, bool):
                self._check_range(name, float(number))
        return value

    def _check_range(self, name: str, number: float) -> None:
        low, high = self.rule.low, self.rule.high
        if low <= number <= high and math.isfinite(number):
            return
        if not math.isfinite(number):
            where = "finite"
        elif number <= 0 < low <= POSITIVE:
            where = "positive"
        else:
            where = f"at least {low:g}" if number < low else f"at most {high:.15g}"
        needed = "lie in [0, 1]" if (low, high) == (0, 1) else f"be {where}"
        raise UsageError(f"{name} is {number:.15g}; it must {needed}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner and isinstance(value, str)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(part, inner[0]) for part in value)
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    return isinstance(value, hint)


def _words(hint: Any) -> list[str]:
    inner = get_args(hint)
    return [*inner] if get_origin(hint) is Literal else [word for part in inner for word in _words(part)]


def _parts(hint: Any) -> list[Any]:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [part for part in parts if part is not NoneType]


@functools.cache
def options_of(kind: type) -> dict[str, Option]:
    """The options of a dataclass, by their names on the command line; its parts are not among them."""
    hints, found = get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        if field.name not in PARTS:
            rule = field.metadata.get("rule", Rule())
            flag = rule.flag or field.name
            found[flag] = Option(field.name, flag, hints[field.name], field.default, rule)
    return found


PARTS = ("model", "solver")  # of a run: fields that hold options themselves


def check(its: Any) -> None:
    """Refuse a dataclass with a value that is none."""
    for each in options_of(type(its)).values():
        object.__setattr__(its, each.field, each.check(getattr(its, each.field)))


@dataclass(frozen=True)
class Options:
    """Options of a part, and which of them were `given`: the others are left to the preset of the environment."""

    kind: ClassVar[str]
    given: ClassVar[frozenset[str]]

    def __new__(cls, *values: Any, **named: Any):
        its = super().__new__(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        object.__setattr__(its, "given", frozenset([*names[: len(values)], *named]))
        return its

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Ensemble(Options):
    """A probabilistic ensemble of networks (`ssec:model_learning`)."""

    kind: ClassVar[str] = "ensemble"

    heads: int = option(5, 2, 1000)
    """Members of the ensemble."""
    width: int = option(64, 1, 10_000, flag="model_width")
    """Width of a member's hidden layers."""
    layers: int = option(2, 2, 100, flag="model_layers")
    """Hidden layers of a member."""
    learning_rate: float = option(2e-3, 0, 10, flag="model_learning_rate")
    """Adam's step size for the ensemble."""
    rounds: int = option(10, 1, 100_000, flag="model_rounds")
    """At most so many rounds of gradient steps per fit; early stopping may end it sooner."""
    epochs: int | None = option(None, 1, 100_000, flag="model_epochs")
    """At most so many passes over the data per fit, in place of the rounds: a fit then costs what the data do."""
    steps: int = option(25, 1, 100_000, flag="round")
    """Gradient steps of a round: the ensemble is validated after each."""
    batch: int = option(256, 1, 100_000, flag="model_batch")
    """Transitions per gradient step of a fit."""
    decay: float = option(1e-4, 0, 1000, flag="model_decay")
    """Decoupled decay of the ensemble's weights, per unit of step size: against knowing its data by heart."""
    average_rate: float = option(1.0, 0, 1, flag="model_average_rate")
    """Polyak rate of the weights that predict (1: the last ones): gradients of few transitions push them to and fro."""
    linear: bool = option(False)
    """Whether the ensemble only learns what a linear model leaves over."""
    layer_norm: bool = option(False)
    """Whether a member's hidden layers are normalised."""
    noise: Literal["state", "constant", "beside"] = option("state")
    """Each state's own noise (state), one for all (constant), or both, means learned between them (beside)."""
    minimum_temperature: float = option(1.0, 0, 1e6)
    """Recalibration never shrinks the epistemic uncertainty below this factor."""


@dataclass(frozen=True)
class GaussianProcess(Options):
    """A Gaussian process per output (`section:gp_models`), with the theory's quantities."""

    kind: ClassVar[str] = "gp"

    kernel: Literal["linear", "squared-exponential", "sum", "product"] = option("squared-exponential")
    """The kernel; sum and product are those of the two others."""
    kernel_fit: bool = option(True)
    """Fit length scales, signal and noise (maximum likelihood, when the data have doubled), or keep those given."""
    lengthscale: tuple[float, ...] = option((1.0,), POSITIVE)
    """Length scale of every input, or one for each, in units of half the input's range."""
    signal: float = option(0.25, POSITIVE)
    """Standard deviation of a change before any data, in units of the observation's scale."""
    noise: float = option(0.01, POSITIVE)
    """Standard deviation of the noise, in units of the signal."""
    ridge: Literal["noise", "theory"] = option("noise")
    """lambda: the noise's variance, or the theory's pH."""
    points: int = option(384, 8, 5000)
    """As many data as are kept as they are; all others are seen through the best of them."""
    norm: float = option(1.0, 0)
    """B_f: the bound on the norm of each output in the kernel's space, in units of the signal."""
    delta: float = option(0.1, POSITIVE, 1)
    """The probability that beta_t may fail with."""
    epsilon: float = option(100.0, POSITIVE)
    """How far below the optimum the output policy's worst case may be."""
    lipschitz: tuple[float, ...] = option((), 0)
    """L_f, L_sigma, L_pi, L_pibar and L_r; by default they are estimated."""
    oracle: float | None = option(None)
    """The game's true value (`rhucrl oracle`), for the regret."""

    def __post_init__(self) -> None:
        check(self)
        if not self.lengthscale:
            raise UsageError("--lengthscale has no numbers; give one, or one per input")
        if self.lipschitz and len(self.lipschitz) != 5:
            raise UsageError(
                f"--lipschitz has {len(self.lipschitz)} numbers; it needs L_f, L_sigma, L_pi, L_pibar, L_r"
            )


@dataclass(frozen=True)
class Known(Options):
    """The true dynamics, to test a solver."""

    kind: ClassVar[str] = "known"


@dataclass(frozen=True)
class LookAhead(Options):
    """Fitted value iteration over candidate actions, and players that look one step ahead: for small games."""

    kind: ClassVar[str] = "look-ahead"

    beta: float | Literal["theory"] = option(1.0, 0, 1e6)
    """Width of the confidence interval that eta hallucinates in; of a Gaussian process also `theory`: beta_t."""
    discount: float = option(0.998, 0, 1)
    """Discount of the critics; returns are always reported undiscounted."""
    model_steps: int = option(4, 1, 10_000)
    """Steps of a model rollout."""
    trace: float = option(0.9, 0, 1)
    """lambda of the max-min returns along a rollout."""
    updates: float = option(2.0, 0, 1000)
    """Gradient steps of each problem per step of the environment."""
    batch: int = option(48, 1, 100_000)
    """Rollouts per gradient step (each has `model_steps` states)."""
    pool: int = option(1024, 4, 1_000_000)
    """Model rollouts made per episode."""
    broad: float = option(0.3, 0, 1)
    """Share of the rollouts that start anywhere; the others start at perturbed states of the replay."""
    learning_rate: float = option(2e-3, 0, 10)
    """Adam's step size for the critics."""
    slowing: float = option(0.125, 0, 1000)
    """The step size falls as 1 / (1 + slowing * episode)."""
    target_rate: float = option(0.02, 0, 1)
    """Polyak rate of the target critics."""
    average_rate: float = option(0.004, 0, 1)
    """Polyak rate of the critics that act."""
    features: int = option(128, 1, 10_000)
    """Periodic features in front of a critic."""
    frequency: float = option(0.64, 0, 1000)
    """Standard deviation of the features' initial frequencies, in turns per unit of the observation's scale."""
    width: int = option(64, 1, 10_000)
    """Width of a critic's two hidden layers."""
    agent_points: int = option(3, 2, 1000)
    """Agent's candidate actions per dimension while learning."""
    acting_points: int = option(7, 2, 1000)
    """Agent's candidate actions per dimension while acting."""


@dataclass(frozen=True)
class ActorCritic(Options):
    """A two-player actor-critic in the model, for actions of any dimension.

    A corner of eta's box is sqrt(p) standard deviations away. On large systems beta holds it at about one: what an
    optimist with beta = 1 hopes for there has nothing to do with what follows, nor has what the pessimist fears.
    """

    kind: ClassVar[str] = "actor-critic"

    beta: float | Literal["theory"] = option(0.05, 0, 1e6)
    """Width of the confidence interval that eta hallucinates in; of a Gaussian process also `theory`: beta_t."""
    discount: float = option(0.995, 0, 1)
    """Discount of the critics; returns are always reported undiscounted."""
    model_steps: int = option(5, 1, 10_000)
    """Steps of a model rollout that gradients flow through."""
    trace: float = option(1.0, 0, 1)
    """lambda of the returns along a rollout (1: values count at its end alone)."""
    start_steps: int = option(20, 1, 10_000)
    """Steps of the model rollouts that such rollouts start from: of real states (1), or of the players' way on."""
    beginnings: float = option(0.1, 0, 1)
    """Share of those rollouts that begin where episodes do: a robot that runs all day forgets how to start."""
    updates: float = option(1.0, 0, 1000)
    """Gradient steps of each problem per step of the environment."""
    critics_first: float = option(0.2, 0, 1)
    """Share of an episode's gradient steps in which only critics learn: the model has just changed."""
    batch: int = option(256, 1, 100_000)
    """Rollouts per gradient step."""
    held: int = option(2, 0, 1000)
    """Held extremes of the adversary's box that each start state meets; a batch has as many fewer start states."""
    rules: int = option(0, 0, 1000)
    """Rules of bang-bang feedback that it meets too: of those that are bred, whether or not it meets them."""
    nobody: bool = option(True)
    """Whether each start state is also met by nobody: an agent must not live on its adversary."""
    worst: float = option(1.0, 0, 1)
    """Weight of the worst lane in what the agent improves, beside the network's; the mean of all lanes has the rest."""
    worst_after: int = option(0, 0, 1_000_000)
    """Episodes over which that weight grows from 0: an agent that fears everything from the start learns to stand."""
    learning_rate: float = option(3e-4, 0, 10)
    """Adam's step size for policies and critics."""
    slowing: float = option(0.0, 0, 1000)
    """The step size falls as 1 / (1 + slowing * episode)."""
    entropy: float = option(-1.0, -1000, 1000)
    """The entropy that the agent's policy is held at, per action in [-1, 1] (all alike: .69)."""
    temperature: float | None = option(None, 0, 1e6)
    """What entropy is worth, in rewards of a step; by default it is learned, to hold the entropy at --entropy."""
    target_rate: float = option(0.02, 0, 1)
    """Polyak rate of the target critics."""
    average_rate: float = option(0.01, 0, 1)
    """Polyak rate of the policy that acts: gradients of few states push the one that learns to and fro."""
    critics: int = option(4, 1, 100)
    """Critics of each problem: targets are the lesser of two of them, the agent climbs the mean of all."""
    width: int = option(200, 1, 10_000)
    """Width of the two hidden layers of policies and critics."""


@dataclass(frozen=True)
class RecedingHorizon(Options):
    """A robust planner: nothing is learned but the model."""

    kind: ClassVar[str] = "planner"

    beta: float | Literal["theory"] = option(0.2, 0, 1e6)  # a search finds more to hope for than gradients do
    """Width of the confidence interval that eta hallucinates in; of a Gaussian process also `theory`: beta_t."""
    steps: int = option(30, 2, 10_000, flag="plan_steps")
    """Steps of a plan."""
    samples: int = option(200, 100, 1_000_000, flag="plan_samples")
    """Rollouts of a round, of the agent's plans against some of the adversary's."""
    elite: float = option(0.2, 0, 1, flag="plan_elite")
    """The share of the plans that the search is refitted to."""
    rounds: int = option(5, 1, 1000, flag="plan_rounds")
    """Rounds of each of the two phases."""
    discount: float = option(0.99, 0, 1, flag="plan_discount")
    """Discount along a plan."""


@dataclass(frozen=True)
class OffPolicy(Options):
    """Soft actor-critic, or deterministic policies, without a model."""

    kind: ClassVar[str] = "off-policy"

    discount: float = option(0.99, 0, 1)
    """Discount of the critics; returns are always reported undiscounted."""
    updates: float = option(1.0, 0, 1000)
    """Gradient steps per step of the environment."""
    batch: int = option(256, 1, 100_000)
    """Transitions per gradient step."""
    learning_rate: float = option(3e-4, 0, 10)
    """Adam's step size for policies and critics."""
    target_rate: float = option(0.005, 0, 1)
    """Polyak rate of the target critics."""
    width: int = option(256, 1, 10_000)
    """Width of the two hidden layers of policies and critics."""
    exploration: float = option(0.1, 0, 100, algos=("ar-ddpg",))
    """Standard deviation of the noise of AR-DDPG's actions, in units of half their range."""


@dataclass(frozen=True)
class OnPolicy(Options):
    """Proximal policy optimisation, without a model."""

    kind: ClassVar[str] = "on-policy"

    discount: float = option(0.99, 0, 1)
    """Discount of the critics; returns are always reported undiscounted."""
    trace: float = option(0.95, 0, 1)
    """lambda of the advantages."""
    learning_rate: float = option(3e-4, 0, 10)
    """Adam's step size for policies and critics."""
    width: int = option(64, 1, 10_000)
    """Width of the two hidden layers of policies and critics."""
    rollouts: int = option(4, 1, 10_000)
    """Episodes of a batch."""
    passes: int = option(80, 1, 100_000)
    """Gradient steps on a batch, at most."""
    divergence: float = option(0.0075, 0, 1e6)
    """The policy's steps end where it has moved so far from the one that played (Kullback-Leibler)."""
    clip: float = option(0.2, 0, 1e6)
    """How far a ratio of probabilities may leave 1."""
    turn: int = option(1, 0, 1_000_000, algos=("rarl",))
    """RARL: so many batches are the agent's, then as many the adversary's, in turn; 0: both learn from each."""
    population: int = option(5, 1, 1000, algos=("rap",))
    """RAP: adversaries, one of which is drawn for each episode."""
    kept: float = option(0.2, 0, 1, algos=("ep-opt",))
    """EP-Opt: the share of a batch's episodes, the worst ones, that is learned from."""


MODELS: dict[str, type[Options]] = {kind.kind: kind for kind in (Ensemble, GaussianProcess, Known)}
SOLVERS: dict[str, type[Options]] = {kind.kind: kind for kind in (LookAhead, ActorCritic, RecedingHorizon)}
LEARNERS: dict[str, type[Options]] = {kind.kind: kind for kind in (OffPolicy, OnPolicy)}
