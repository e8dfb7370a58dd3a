"""Every option of a training run, in one frozen dataclass; importable without JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from rhucrl.algorithms import MODEL_FREE
from rhucrl.errors import UsageError, unknown


@dataclass(frozen=True)
class TrainConfig:
    """What is learned, by which algorithm, and with which numbers."""

    env: str = "pendulum"
    """The environment (see `rhucrl list envs`)."""
    setting: Literal["none", "adversarial", "action", "parameter"] = "adversarial"
    """The adversary's means: forces (pendulum: gravity and mass), a share of the action, an episode's mass, nothing."""
    strength: float | None = None
    """Strength of the adversary; pendulum: alpha in [0, 1), by default .2 (parameter: .8); robots: newtons, by default
    10 (action: alpha in [0, 1), .3; parameter: share of the range of masses in [0, 1], 1)."""
    scope: Literal["step", "episode"] | None = None
    """Whether the adversary acts at every step or once per episode; by default what the setting asks for."""
    mixture: Literal["noisy", "probabilistic"] | None = None
    """Action setting: (1 - alpha) a + alpha abar (noisy, the default), or abar with probability alpha."""
    reward: Literal["dense", "sparse"] = "dense"
    """The pendulum's reward: dense, or only near the upright rest, minus the cost of the action."""
    action_cost: float | None = None
    """The pendulum's cost c of the squared action; by default .001 (sparse: .05)."""
    horizon: int | None = None
    """Steps per episode; by default the environment's: 200 of the pendulum, 50 of the reacher, 1000 of the others."""

    algo: Literal[
        "rh-ucrl", "best-response", "maximin-mb", "h-ucrl", "greedy", "maximin-mf", "ar-ddpg", "rarl", "rap", "ep-opt",
        "domain-randomization", "sac", "ppo",
    ] = "rh-ucrl"  # fmt: skip
    """A row of the algorithm table (see `rhucrl list algos`)."""
    model: Literal["ensemble", "gp", "known"] = "ensemble"
    """A learned model, an ensemble or (small systems) a Gaussian process, or the true dynamics (to test the solver)."""
    solver: Literal["look-ahead", "actor-critic", "planner"] | None = None
    """Candidates and look-ahead (small games: the pendulum's default), networks (the robots' default), or plans."""
    seed: int = 0
    """Seed of everything random."""
    episodes: int = 30
    """Episodes on the real system, the random ones included."""
    random_episodes: int = 1
    """Episodes of random actions at the start."""
    beta: float | Literal["theory"] = 1.0
    """Width of the confidence interval that eta hallucinates in; of a Gaussian process also `theory`: beta_t."""

    discount: float = 0.998
    """Discount of the critics; returns are always reported undiscounted."""
    model_steps: int = 4
    """Steps of a model rollout."""
    trace: float = 0.9
    """lambda of the max-min returns along a rollout."""
    updates: float = 2.0
    """Gradient steps of each problem per step of the environment."""
    batch: int = 48
    """Rollouts per gradient step (each has `model_steps` states)."""
    lanes: int = 5
    """Actor-critic: adversaries that each start state is rolled out against, the network's among them; a batch has
    as many fewer start states."""
    pool: int = 1024
    """Model rollouts made per episode."""
    broad: float = 0.3
    """Share of the rollouts that start anywhere, the others at perturbed states of the replay (robots: at perturbed
    ones, the others at plain ones)."""
    learning_rate: float = 2e-3
    """Adam's step size for the solver's networks."""
    slowing: float = 0.125
    """The step size falls as 1 / (1 + slowing * episode)."""
    entropy: float = -1.0
    """Actor-critic: the entropy that the agent's policy is held at, per action in [-1, 1] (all alike: .69)."""
    innovations: Literal["drawn", "recorded"] = "drawn"
    """Actor-critic: what an imagined step adds to its prediction: noise that is drawn from the model, or what the model
    missed of the real step that followed the start state."""
    target_rate: float = 0.02
    """Polyak rate of the target critics."""
    average_rate: float = 0.004
    """Polyak rate of the critics that act."""
    features: int = 128
    """Waves in front of a critic."""
    frequency: float = 0.64
    """Standard deviation of the waves' initial frequencies, in turns per unit of the observation's scale."""
    width: int = 64
    """Width of a critic's two hidden layers."""
    agent_points: int = 3
    """Agent's candidate actions per dimension while learning."""
    acting_points: int = 7
    """Agent's candidate actions per dimension while acting."""

    plan_steps: int = 30
    """Planner: steps of a plan."""
    plan_samples: int = 200
    """Planner: rollouts of a round, of the agent's plans against some of the adversary's."""
    plan_elite: float = 0.2
    """Planner: the share of the plans that the search is refitted to."""
    plan_rounds: int = 5
    """Planner: rounds of each of the two phases."""
    plan_discount: float = 0.99
    """Planner: discount along a plan."""

    exploration: float = 0.1
    """AR-DDPG: standard deviation of the noise of its actions, in units of half their range."""
    rollouts: int = 4
    """On-policy: episodes of a batch."""
    passes: int = 80
    """On-policy: gradient steps on a batch, at most."""
    divergence: float = 0.0075
    """On-policy: the policy's steps end where it has moved so far from the one that played (Kullback-Leibler)."""
    clip: float = 0.2
    """PPO: how far a ratio of probabilities may leave 1."""
    population: int = 5
    """RAP: adversaries, one of which is drawn for each episode."""
    kept: float = 0.2
    """EP-Opt: the share of a batch's episodes, the worst ones, that is learned from."""

    heads: int = 5
    """Members of the ensemble."""
    model_width: int = 64
    """Width of a member's two hidden layers."""
    model_learning_rate: float = 2e-3
    """Adam's step size for the ensemble."""
    model_rounds: int = 10
    """At most so many rounds of gradient steps per fit; early stopping may end it sooner."""
    round: int = 25
    """Gradient steps of a round: the ensemble is validated after each."""
    model_batch: int = 256
    """Transitions per gradient step of a fit."""
    linear: bool = False
    """Whether the ensemble only learns what a linear model leaves over."""
    minimum_temperature: float = 1.0
    """Recalibration never shrinks the epistemic uncertainty below this factor."""

    kernel: Literal["linear", "squared-exponential", "sum", "product"] = "squared-exponential"
    """Gaussian process: the kernel; sum and product are those of the two others."""
    kernel_fit: bool = True
    """Gaussian process: fit length scales, signal and noise (maximum likelihood, when the data have doubled), or keep
    those that are given."""
    lengthscale: tuple[float, ...] = (1.0,)
    """Gaussian process: length scale of every input, or one for each, in units of half the input's range."""
    signal: float = 0.25
    """Gaussian process: standard deviation of a change before any data, in units of the observation's scale."""
    noise: float = 0.01
    """Gaussian process: standard deviation of the noise, in units of the signal."""
    ridge: Literal["noise", "theory"] = "noise"
    """Gaussian process: lambda is the noise's variance, or the theory's pH."""
    points: int = 384
    """Gaussian process: as many data as are kept as they are; all others are seen through the best of them."""
    norm: float = 1.0
    """Theory: B_f, the bound on the norm of each output in the kernel's space, in units of the signal."""
    delta: float = 0.1
    """Theory: the probability that beta_t may fail with."""
    epsilon: float = 100.0
    """Theory: how far below the optimum the output policy's worst case may be."""
    lipschitz: tuple[float, ...] = ()
    """Theory: L_f, L_sigma, L_pi, L_pibar and L_r; by default they are estimated."""
    oracle: float | None = None
    """Theory: the game's true value (`rhucrl oracle`), for the regret."""

    def __post_init__(self) -> None:
        for name in ("lengthscale", "lipschitz"):  # JSON knows no tuples
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name, least in LEAST.items():
            if (given := getattr(self, name)) not in (None, "theory") and given < least:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is {given}; it must be at least {least}")
        for name in ("algo", "model", "kernel", "ridge", "innovations"):
            choices = get_args(get_type_hints(TrainConfig)[name])
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        if self.strength is not None and not 0 <= self.strength < float("inf"):
            raise UsageError(f"--strength is {self.strength}; it must be finite and at least 0")
        for name in ("discount", "trace", "broad", "kept", "delta", "plan_discount", "plan_elite"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must lie in [0, 1]")
        if self.points > 5000:
            raise UsageError(f"--points is {self.points}; it must be at most 5000: beyond them the best are chosen")
        if self.beta == "theory" and self.model != "gp":
            raise UsageError(f"--beta theory is for --model gp: --model {self.model} needs a number")
        if self.lipschitz and len(self.lipschitz) != 5:
            raise UsageError(
                f"--lipschitz has {len(self.lipschitz)} numbers; it needs L_f, L_sigma, L_pi, L_pibar, L_r"
            )
        positive = {"lengthscale": min(self.lengthscale, default=0), "signal": self.signal, "noise": self.noise,
                    "delta": self.delta, "epsilon": self.epsilon}  # fmt: skip
        if wrong := [f"--{name} is {given:g}" for name, given in positive.items() if not given > 0]:
            raise UsageError(f"{wrong[0]}; it must be positive")
        row = MODEL_FREE.get(self.algo)
        if row is not None and self.setting not in row.settings:
            made = " or ".join(row.settings)
            raise UsageError(f"--algo {self.algo} is made for --setting {made}, not for {self.setting}")
        if row is not None and row.adversaries == "one" and self.scope == "episode":
            raise UsageError(f"--algo {self.algo} has an adversary that acts at every step: leave --scope out")

    @classmethod
    def preset(cls, env: str, speed: Speed = "fast", numbers_of: str | None = None, **given: Any) -> TrainConfig:
        """The configuration for an environment: its preset (or that of `numbers_of`), and what is given."""
        for name in given:
            if name not in cls.__dataclass_fields__:
                raise unknown("option", name, cls.__dataclass_fields__)
        numbers = preset(numbers_of or env, given.get("algo", cls.algo), speed, given.get("solver"))
        return cls(**{"env": env, **numbers, **given})


# A corner of eta's box is sqrt(p) standard deviations away. On large systems beta holds it at about one: what an
# optimist with beta = 1 hopes for there has nothing to do with what follows, nor has what the pessimist fears.
NETWORKS = {
    "episodes": 50, "beta": 0.2, "discount": 0.99, "model_steps": 3, "broad": 0.0, "trace": 0.5, "updates": 0.7,
    "batch": 128, "width": 128, "learning_rate": 3e-4, "slowing": 0.0, "target_rate": 0.02, "model_width": 128,
    "model_learning_rate": 2e-3, "model_rounds": 20, "round": 100, "model_batch": 64, "linear": True,
}  # fmt: skip
LEGS = NETWORKS | {
    "episodes": 60, "discount": 0.998, "model_steps": 4, "trace": 0.9, "updates": 1.0, "batch": 32, "width": 96,
    "learning_rate": 5e-4, "slowing": 0.1, "entropy": -0.33, "model_width": 96, "model_rounds": 10,
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "pendulum": {},
    "inverted-pendulum": NETWORKS | {
        "episodes": 30, "beta": 1.0, "model_steps": 20, "broad": 0.5, "trace": 0.9, "updates": 0.3, "batch": 120,
        "width": 64, "learning_rate": 1e-3, "model_width": 32,
    },
    "hopper": LEGS,
    "swimmer": NETWORKS | {"beta": 1.0, "innovations": "recorded"},
    "walker": LEGS | {"discount": 0.995},
    "reacher": NETWORKS | {
        "episodes": 100, "beta": 1.0, "model_steps": 5, "trace": 0.9, "updates": 6.0, "batch": 64,
        "learning_rate": 1e-3, "model_rounds": 10, "round": 50,
    },
}  # fmt: skip


Speed = Literal["fast", "full"]
FULL = {"updates": 2.0, "batch": 100, "width": 200, "model_width": 200}  # two updates per step, as in the paper

OFF_POLICY = {
    "episodes": 200, "discount": 0.99, "updates": 1.0, "batch": 256, "width": 256, "learning_rate": 3e-4,
    "slowing": 0.0, "target_rate": 0.005,
}  # fmt: skip
ON_POLICY = {"episodes": 1000, "discount": 0.99, "trace": 0.95, "width": 64, "learning_rate": 3e-4, "slowing": 0.0}


PLANNER = {"beta": 0.2}  # a search finds more to hope for than the critics' gradients do: docs/attempts.md


def preset(env: str, algo: str = "rh-ucrl", speed: Speed = "fast", solver: str | None = None) -> dict[str, Any]:
    """What differs from the pendulum's numbers; robots and environments of one's own share most of it."""
    if algo in MODEL_FREE:
        row = MODEL_FREE[algo]
        numbers = OFF_POLICY if row.learner == "off-policy" else ON_POLICY
        return numbers | ({"rollouts": 10} if row.worst_only else {})
    numbers = PRESETS.get(env, NETWORKS)
    numbers = numbers | FULL if numbers and speed == "full" else numbers
    return numbers | PLANNER if solver == "planner" else numbers


LEAST = {
    "horizon": 1, "episodes": 1, "random_episodes": 1, "beta": 0, "model_steps": 1, "updates": 0, "batch": 1, "pool": 4,
    "features": 1, "width": 1, "agent_points": 2, "acting_points": 2, "heads": 2, "model_width": 1, "model_rounds": 1,
    "model_batch": 1, "round": 1, "plan_steps": 2, "plan_samples": 100, "plan_rounds": 1, "seed": 0, "exploration": 0,
    "rollouts": 1, "passes": 1, "population": 1, "points": 8, "norm": 0,
}  # fmt: skip
