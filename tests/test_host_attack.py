"""Attacks on games that are played on the host: known worst cases, fair replays, and adversaries that can be saved."""

import json

import gymnasium as gym
import jax
import numpy as np
import pytest

import rhucrl
from rhucrl.attacks import arena
from rhucrl.attacks import battery as searching
from rhucrl.attacks import families as adversaries
from rhucrl.attacks import worst_case as attack
from rhucrl.attacks.arena import Actor, HostArena, gains
from rhucrl.attacks.battery import AttackSearch, Effort
from rhucrl.attacks.folder import Folder
from rhucrl.attacks.worst_case import EFFORTS, load_adversary, rounds, seeds, sweep, sweep_parameter, worst_case
from rhucrl.cli import main as cli
from rhucrl.envs import make
from rhucrl.envs.wrap import wrap
from rhucrl.errors import UsageError
from rhucrl.training import protocol

TINY = Effort(16, 2, 1, 6, 2, (9,), 2, 1, 2)
FULL = TINY._replace(depths=(1, 4), evolution=2, sac=2)


class Alternating(gym.Env):
    """The sign of the state flips each step. The reward is 1 + (sign * wind), or what `reward` makes of both.

    Any constant wind earns about the horizon; the wind -sign(state) takes its strength away at every step.
    """

    observation_space = gym.spaces.Box(-2, 2, (1,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float64)

    def __init__(self, reward=lambda sign, wind: 1 + sign * wind, life=10**6):
        self.reward, self.life, self.wind, self.time = reward, life, 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign, self.time = self.np_random.choice((-1.0, 1.0)), 0
        return np.array([self.sign]), {}

    def step(self, action):
        gain = self.reward(self.sign, self.wind)
        self.sign, self.time = -self.sign, self.time + 1
        return np.array([self.sign]), gain, self.time >= self.life, False, {}

    def get_state(self):
        return {"sign": self.sign, "time": self.time}

    def set_state(self, saved):
        self.sign, self.time = saved["sign"], saved["time"]


class Wind:
    box, neutral = (-np.ones(1), np.ones(1)), np.zeros(1)

    def apply(self, env, value):
        env.unwrapped.wind = float(value[0])


def game(strength=0.8, scope="step", horizon=20, **options):
    env = Alternating(**options)
    return wrap(env, disturbance=Wind(), strength=strength, scope=scope, horizon=horizon, reward_range=(0, 2))


def still(obs):
    return np.zeros(1)


def test_state_feedback_is_found():
    case = worst_case(still, game())
    assert case.nominal == 20
    assert case.attacks["constant"] == pytest.approx(20)
    assert case.attacks["bang-bang"] == pytest.approx(20 * 0.2)
    assert case.attacks["cross-entropy"] == pytest.approx(20 * 0.2, abs=2)
    assert case.worst == min(case.attacks.values()) == case.attacks[case.attack]


def test_the_inner_worst_value_of_an_episode_is_found():
    case = worst_case(still, game(scope="episode", reward=lambda sign, wind: (wind - 0.37) ** 2))
    assert case.attack == "search-9"
    assert case.worst < 20 * 0.03**2
    assert case.adversary(np.ones(1), 0)[0] == pytest.approx(0.37, abs=0.03)


def test_the_return_stops_at_the_end_and_at_the_horizon():
    assert worst_case(still, game(life=3, reward=lambda sign, wind: 1.0)).worst == 3
    assert worst_case(still, game(horizon=7, reward=lambda sign, wind: 1.0)).worst == 7


def test_among_equal_returns_the_one_that_moved_the_system_further_counts():
    env = make("inverted-pendulum", "adversarial", 1.0, horizon=50)
    search = AttackSearch(HostArena(rhucrl.lqr(), env), TINY, None, [0], 0)
    weights, scores = search.ranked("constant", np.array([[0.0, 0.0], [1.0, 1.0], [0.3, 0.0]]))
    assert {gain for gain, _ in scores} == {50.0}
    np.testing.assert_array_equal(weights[:, 0], [1, 0.3, 0])


def test_replays_are_on_episodes_that_no_search_has_seen(monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    played, original = {}, arena.play

    def watched(env, act, adversary, seed):
        played.setdefault(adversary, set()).add(seed)
        return original(env, act, adversary, seed)

    monkeypatch.setattr(arena, "play", watched)
    case = worst_case(still, game(), seed=3)
    found = set(case.adversaries.values())
    seen = {seed for adversary, seeds in played.items() if adversary not in {None, *found} for seed in seeds}
    assert len(seen) == TINY.seen
    for adversary in found:
        assert len(played[adversary]) == TINY.unseen
        assert not played[adversary] & seen


@pytest.mark.parametrize("scope", ["step", "episode"])
def test_the_same_seed_gives_the_same_numbers_and_counts_every_attack(scope, monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    shown = []
    progress = type("Shown", (), {"update": lambda self, n, text="": shown.append((n, text))})()
    env = game(scope=scope)
    first = worst_case(still, env, "quick", 5, progress)
    assert worst_case(still, env, "quick", 5).attacks == first.attacks
    assert shown[-1][0] == rounds(still, env, "quick") == len(first.attacks)
    assert [n for n, _ in shown] == sorted(n for n, _ in shown)
    assert shown[TINY.unseen][1].startswith("constant, ")


def test_the_order_of_attacks_does_not_matter(monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    env = game(reward=lambda sign, wind: (wind - 0.37 * sign) ** 2)
    before = worst_case(still, env).attacks
    monkeypatch.setattr(attack, "battery", lambda search: dict(reversed(searching.battery(search).items())))
    again = worst_case(still, env).attacks
    assert again == before
    assert list(again) != list(before)


def test_no_strength_changes_nothing(monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    env = make("hopper", "adversarial", 10.0, horizon=30)
    swept = sweep(lambda obs: np.sin(obs[:3]), env, (0.0, 10.0))
    assert set(swept.cases[0].attacks.values()) == {swept.cases[0].nominal}
    assert swept.worst[1] < swept.cases[1].nominal == swept.cases[0].nominal


def test_mixtures_and_masses_are_attacked(monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    fall = make("inverted-pendulum", "action", 0.6, mixture="probabilistic", horizon=60)
    assert worst_case(rhucrl.lqr(), fall).worst < 60
    masses = make("hopper", "parameter", 1.0, horizon=40)
    stand = lambda obs: np.zeros(3)  # noqa: E731
    swept = sweep_parameter(stand, masses, points=5)
    np.testing.assert_allclose(np.asarray(swept.values)[:, 0], [0.001, 0.50075, 1.0005, 1.50025, 2], rtol=1e-4)
    assert float(swept.returns.std()) > 0
    case = worst_case(stand, masses)
    assert case.worst <= float(swept.returns.min()) + 1
    assert masses.boxes["adversary"].contains(case.adversary(np.zeros(12), 0).astype(np.float32))


def test_the_nominal_return_is_that_of_no_mixture(monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    mixed, plain = make("inverted-pendulum", "action", 0.7, horizon=30), make("inverted-pendulum", horizon=30)
    shove = lambda obs: np.full(1, 0.3)  # noqa: E731
    nominal = worst_case(shove, mixed).nominal
    assert nominal == np.mean(gains(HostArena(shove, plain), None, seeds(0, 1, TINY.unseen))) < 30
    assert nominal != np.mean(gains(HostArena(shove, mixed), lambda obs, time: mixed.neutral, seeds(0, 1, 2)))


class Bowl(AttackSearch):
    """Adversaries are worse for the policy the nearer their weights are to 1."""

    def ranked(self, family, weights):
        order = np.argsort(np.square(weights - 1).sum(1))
        return weights[order], [(float(np.square(weights[i] - 1).sum()), 0.0) for i in order]


def test_the_search_refits():
    env = game()
    effort = EFFORTS["host"]["quick"]._replace(population=24, generations=40)
    search = Bowl(HostArena(still, env), effort, None, [0], 0)
    for seed in range(5):
        start = searching.START * np.random.default_rng(seed).normal(size=(24, adversaries.size(env.game, "network")))
        (found,) = search.cross_entropy("network", start, np.random.default_rng(100 + seed))
        assert np.square(found.weights - 1).sum() < search.ranked("network", start)[1][0][0] / 20


def test_sequences_evolve():
    """A wind that changes its side at every step takes everything: only a sequence of single steps has it."""
    env = game(reward=lambda sign, wind: np.square(wind - 0.8 * sign) / 2)
    start = np.zeros((1, 20))
    begun = AttackSearch(HostArena(still, env), TINY, None, [0], 0).evolve(start, np.random.default_rng(0))
    search = AttackSearch(HostArena(still, env), TINY._replace(evolution=150, population=16), None, [0], 0)
    found = search.evolve(start, np.random.default_rng(0))
    before, after = (gains(HostArena(still, env), one[0], [0])[0] for one in (begun, found))
    assert before == pytest.approx(20 * 0.32)
    assert after < 0.1 * before


class Predicts:
    """As a model of Stable-Baselines3."""

    policy = None

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return -np.sign(observation) * deterministic, state


def test_models_with_predict_play_deterministically():
    env = game()
    np.testing.assert_array_equal(Actor(Predicts(), env)(np.ones(1)), [-1])


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda obs: np.full(1, np.nan), "not finite"),
        (lambda obs: np.zeros(2), r"shape \(2,\), not \(1,\)"),
        (lambda obs: np.full(1, 1.5), r"action \[1.5\] is outside \[-1.0\] to \[1.0\]"),
        (3, "no policy"),
    ],
)
def test_a_bad_policy_is_told(policy, told):
    with pytest.raises(UsageError, match=told):
        worst_case(policy, game())


def test_mistakes():
    with pytest.raises(UsageError, match="'quick'"):
        worst_case(still, game(), "quik")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"give the environment"):
        worst_case(still, game().game)


@pytest.mark.parametrize("family", adversaries.FAMILIES)
def test_adversaries_are_data(family, tmp_path):
    env = make("inverted-pendulum", "adversarial", 5.0)
    weights = np.random.default_rng(0).normal(size=adversaries.size(env.game, family))
    adversary = adversaries.member(env.game, family, weights)
    adversary.save(tmp_path / "one")
    again, obs = load_adversary(tmp_path / "one"), np.array([0.1, -0.05, 0.3, 1.0])
    for time in (0, 999):
        np.testing.assert_array_equal(again(obs, time), adversary(obs, time))
        assert (np.abs(adversary(obs, time)) <= 5).all()


def test_known_feedback_is_what_it_says():
    env = make("inverted-pendulum", "adversarial", 5.0)
    push = adversaries.member(env.game, "bang-bang", adversaries.known(env.game)[0])
    np.testing.assert_array_equal(push(np.array([9.0, 9.0, 1.0, -2.4]), 0), [5, 5])
    np.testing.assert_array_equal(push(np.array([9.0, 9.0, 1.0, -2.6]), 0), [-5, 5])
    press = adversaries.member(env.game, "bang-bang", adversaries.known(env.game)[1])
    np.testing.assert_array_equal(press(np.array([9.0, 9.0, 1.0, -2.4]), 0), [5, -5])


def test_no_step_of_an_adversary_touches_jax(monkeypatch):
    env = make("inverted-pendulum", "adversarial", 5.0, horizon=5)
    act = Actor(still, env)
    members = [
        adversaries.member(env.game, family, np.ones(adversaries.size(env.game, family)))
        for family in adversaries.FAMILIES
    ]
    with jax.transfer_guard("disallow"):
        gains = [arena.play(env, act, adversary, 0).steps for adversary in members]
    assert gains == [5] * len(gains)


def test_the_command_attacks_saves_and_refuses(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    place = ["--env", "inverted-pendulum", "--strength", "10", "--horizon", "40"]
    assert cli.main(["attack", "lqr", *place, "--budget", "quick", "--save", str(tmp_path / "found")]) == 0
    told = capsys.readouterr()
    assert "worst case" in told.out
    assert "bang-bang" in told.out
    assert "attack lqr" in told.err
    found = rhucrl.load_adversary(tmp_path / "found" / "bang-bang")
    env = make("inverted-pendulum", "adversarial", 10.0, horizon=40)
    assert np.mean(gains(HostArena(rhucrl.lqr(), env), found, [1, 2, 3])) < 30
    for arguments, remedy in [
        (["attack", "lqr", "--env", "hopper"], "controller of inverted-pendulum"),
        (["attack", "lqt", "--env", "inverted-pendulum"], "did you mean 'lqr'?"),
        (["attack", "somewhere", "--strength", "3"], "belongs to --env"),
    ]:
        assert cli.main(arguments) == 2
        assert remedy in capsys.readouterr().err


def test_planning_finds_state_feedback_by_itself():
    case = worst_case(still, game(), "standard", only=["planning-1"])
    assert case.worst == pytest.approx(20 * 0.2)


def test_planning_leaves_the_episode_as_it_was():
    """With no strength every plan is the same plan, and saving and restoring the simulator changes nothing."""
    env = make("hopper", "adversarial", 0.0, horizon=40)
    stand = lambda obs: np.sin(obs[:3])  # noqa: E731
    case = worst_case(stand, env, "standard", only=["planning-1", "planning-20"])
    assert set(case.attacks.values()) == {case.nominal}
    assert case.findings["planning-1"].steps > 9 * 40 * len(case.calm)


def test_an_interrupted_attack_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", FULL)
    env, whole, part = game(), Folder(tmp_path / "whole", {"seed": 0}), tmp_path / "part"
    first = worst_case(still, env, shelf=whole)
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {*first.attacks, "attack.json"}

    class Stopping(Folder):
        def put(self, name, finding):
            super().put(name, finding)
            if name == "bang-bang":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worst_case(still, env, shelf=Stopping(part, {"seed": 0}))
    kept = json.loads((part / "attack.json").read_bytes())["findings"]
    played, original = [], attack.carried_out
    monkeypatch.setattr(attack, "carried_out", lambda *given: played.append(given) or original(*given))
    again = worst_case(still, env, shelf=Folder(part, {"seed": 0}))
    assert again.attacks == first.attacks
    assert len(played) == len(first.attacks) - len(kept) > 0
    for name, found in again.findings.items():
        replayed = np.mean(gains(HostArena(still, env), found.adversary, seeds(0, 1, FULL.unseen)))
        assert replayed == pytest.approx(first.attacks[name])
    with pytest.raises(UsageError, match="another seed"):
        Folder(part, {"seed": 1})


def test_the_adversary_of_training_is_tried_and_saved(tmp_path, monkeypatch):
    monkeypatch.setitem(EFFORTS["host"], "quick", TINY)
    env = make("inverted-pendulum", "adversarial", 3.0, horizon=20)
    agent = rhucrl.RHUCRL(env, strength=3.0, horizon=20)
    agent._pair = protocol.ModelBased(agent.config).initial(env).last  # a network has an opinion before it has learned
    case = worst_case(agent, env, shelf=Folder(tmp_path, {}), only=["constant", "trained"])
    again, obs = load_adversary(tmp_path / "trained"), np.array([0.1, -0.05, 0.3, 1.0])
    np.testing.assert_allclose(again(obs, 0), case.adversaries["trained"](obs, 0), rtol=1e-6)
    np.testing.assert_allclose(again.bind(env, None)(obs, 0), again(obs, 0), rtol=1e-5, atol=1e-6)
    alone = rhucrl.HUCRL(env, strength=3.0, horizon=20)
    alone._pair = agent._pair  # it has an adversary's network too, which nobody has taught
    np.testing.assert_array_equal(searching.Trained(alone).bind(env, None)(obs, 0), env.neutral)


def test_the_number_of_processes_does_not_matter(tmp_path):
    """Real processes: each makes its own policy and environment, and is told its adversaries."""
    place = ["--env", "inverted-pendulum", "--strength", "8", "--horizon", "60", "--budget", "quick"]
    for jobs in (1, 2):
        given = ["--only", "constant", "bang-bang", "--jobs", str(jobs), "--save", str(tmp_path / f"with-{jobs}")]
        assert cli.main(["attack", "lqr", *place, *given]) == 0
    one, two = (json.loads((tmp_path / f"with-{jobs}" / "attack.json").read_bytes())["findings"] for jobs in (1, 2))
    for name in one:
        assert one[name]["returns"] == two[name]["returns"]
        assert one[name]["steps"] == two[name]["steps"] > 0


def test_a_parameter_is_swept_over_its_closed_range(tmp_path, capsys):
    env = make("inverted-pendulum", "parameter", horizon=30)
    agent = rhucrl.RHUCRL(env, setting="parameter", horizon=30, scope="episode")
    agent._pair = protocol.ModelBased(agent.config).initial(env).last
    agent.save(tmp_path / "policy")
    assert cli.main(["evaluate", str(tmp_path / "policy"), "--sweep", "mass=0.001:2:5"]) == 0
    told = capsys.readouterr().out
    assert all(value in told for value in ("0.001", "0.5008", "1.5", "the worst mass"))
    assert (tmp_path / "policy" / "sweep.png").stat().st_size > 5000
    for asked, remedy in [
        ("mass=0.001:3:5", "range is 0.001 to 2"),
        ("mass=1", "LOW:HIGH:COUNT"),
        ("length=0.5:1:5", "choose from mass"),
        ("mass=0.5:1:2", "at least 3"),
        ("mass=0.5:1:3,mass=0.5:1:3", "two different ones"),
    ]:
        assert cli.main(["evaluate", str(tmp_path / "policy"), "--sweep", asked]) == 2
        assert remedy in capsys.readouterr().err


def test_an_attack_that_helps_the_policy_is_not_its_worst_case(tmp_path, capsys, monkeypatch):
    found = attack.WorstCase((3.0,), {"constant": attack.AttackFinding(None, (5.0,), 1, 0.0)})
    monkeypatch.setattr("rhucrl.cli.attack.attacked", lambda *_: found)
    assert cli.main(["attack", "lqr", "--env", "inverted-pendulum", "--save", str(tmp_path), "--jobs", "1"]) == 0
    assert "worst case 3.0, that of no adversary" in capsys.readouterr().out
