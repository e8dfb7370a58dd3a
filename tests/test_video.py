"""Films: a file for each adversary, arrows as long as forces are large, words that tell the time and the return."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import ImageColor

import rhucrl
from rhucrl.attacks.families import member
from rhucrl.cli import main as cli
from rhucrl.envs import make
from rhucrl.envs.physics import mujoco_of
from rhucrl.errors import UsageError
from rhucrl.experiments import cameras, video
from rhucrl.experiments.overlay import Caption, Overlay
from rhucrl.experiments.style import COLOURS
from rhucrl.runtime.progress import SILENT

imageio = pytest.importorskip("imageio.v2")
ffmpeg = pytest.importorskip("imageio_ffmpeg")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # films are read by a process too

CAPTION = Caption("RH-UCRL", "against an adversary", COLOURS["rh-ucrl"])


@pytest.fixture
def drawable(monkeypatch):
    """A place to draw, in a process that has not decided on another one."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    try:
        cameras.offscreen().free()
    except UsageError as error:
        pytest.skip(str(error))


def frames_of(path):
    return ffmpeg.count_frames_and_secs(str(path))[0]


def constant(value):
    return lambda obs, time: np.asarray(value, np.float32)


def filmed(env, adversary, seconds=0.05, action=0.0):
    """The frames as they are before an encoder loses something."""
    dt = video._seconds_per_step(env)
    policy = lambda obs: np.full(env.boxes["agent"].shape, action)  # noqa: E731
    return list(video._frames(env, policy, adversary, CAPTION, 0, seconds, dt, 1, SILENT))


def like(frame, name):
    """Where the frame has one of the page's colours."""
    return np.abs(frame.astype(int) - ImageColor.getrgb(COLOURS[name])).max(-1) < 40


def test_the_pendulum(tmp_path):
    env = make("pendulum", "adversarial", horizon=12)
    mp4, gif = video.record(env, lambda obs: np.ones(1), constant([1.2, 0.8]), tmp_path / "swing.any")
    assert (mp4.name, gif.name) == ("swing.mp4", "swing.gif")
    assert frames_of(mp4) == 13 + 20  # every step and the start; a second's rest at the end
    frames = imageio.mimread(gif)
    assert len(frames) == 13
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 100


def test_words_change_where_nothing_moves():
    frames = filmed(make("pendulum", "adversarial", horizon=3), constant([1.0, 1.0]), np.inf)  # it hangs and rests
    words, rest = [f[: cameras.TOP] for f in frames], [f[cameras.TOP :] for f in frames]
    assert len({w[:36].tobytes() for w in words}) == 4  # the return
    assert len({w[36:].tobytes() for w in words}) == 4  # the time
    assert len({r.tobytes() for r in rest}) == 1
    half = words[0].shape[1] // 2  # on the left is who plays, on the right are return and time
    assert len({w[:, :half].tobytes() for w in words}) == 1


def test_arrows_are_bright_and_grow_with_the_force(drawable):
    env = make("inverted-pendulum", "adversarial", 10.0, horizon=3)
    shown = {force: like(filmed(env, constant(force))[-1], "adversary") for force in
             ((0, 0), (4, 0), (10, 0), (-10, 0), (0, 10), (0, -10))}  # fmt: skip
    counts = {force: int(mask.sum()) for force, mask in shown.items()}
    assert counts[0, 0] == 0
    assert counts[4, 0] > 200
    assert counts[10, 0] > 1.4 * counts[4, 0]
    wide = {force: np.ptp(np.flatnonzero(shown[force].any(0))) for force in ((4, 0), (10, 0))}
    assert wide[10, 0] > wide[4, 0] + 40  # in pixels

    def centre(force, axis):
        return np.nonzero(shown[force])[axis].mean()

    assert centre((10, 0), 1) > centre((-10, 0), 1) + 50
    assert centre((0, 10), 0) < centre((0, -10), 0) - 50


def test_the_ground_is_light_and_the_model_stays_as_it_is(drawable):
    env = make("half-cheetah", "adversarial", horizon=3)
    model = mujoco_of(env.system.simulator.env)[0]
    looks = lambda: [np.copy(x) for x in (model.tex_data, model.mat_rgba, model.geom_rgba, model.light_diffuse,  # noqa: E731
                     model.vis.headlight.ambient, model.vis.global_.offwidth)]  # fmt: skip
    before, frame = looks(), filmed(env, constant(np.zeros(6)))[-1]
    assert frame.shape == (480, 640, 3)
    assert frame[cameras.TOP :].mean() > 210
    assert frame[cameras.TOP :].min() < 130  # and not empty
    for one, other in zip(before, looks(), strict=True):
        np.testing.assert_array_equal(one, other)
    alone = filmed(make("inverted-pendulum", "adversarial", horizon=3), None)[-1]
    assert tuple(alone[-1, 0]) == ImageColor.getrgb(COLOURS["page"])  # where there is nothing


def test_nobody_takes_no_share_of_the_action(tmp_path):
    """Against nobody an action is executed as it is, in every setting."""
    films = []
    for setting in ("none", "action"):
        files = video.record(make("pendulum", setting, horizon=6), lambda obs: np.ones(1), None, tmp_path / setting)
        films.append(imageio.mimread(files[1]))
    np.testing.assert_array_equal(*films)


def test_a_parameter_is_held_and_told():
    env = make("pendulum", "parameter", horizon=4)
    moments = list(video._episode(env, lambda obs: np.ones(1), lambda obs, time: np.array([1.8 - 0.1 * time]), 0, 0.05))
    assert [m.adversary.tolist() for m in moments] == [[pytest.approx(1.8)]] * 5
    mass, torque = Overlay(env, CAPTION).dials(moments[-1])
    assert (mass.name, mass.text, mass.bars[0][0]) == ("relative mass", "1.80", pytest.approx(1.0, abs=1e-6))
    assert (torque.name, torque.text) == ("torque", "1.00")
    robot = make("inverted-pendulum", "parameter", horizon=4)
    told = Overlay(robot, CAPTION).dials(moments[-1]._replace(adversary=np.array([0.5])))
    assert [(dial.name, dial.text) for dial in told] == [("relative mass of pole", "0.50")]


@pytest.mark.parametrize("mixture", ["noisy", "probabilistic"])
def test_a_share_of_the_action_is_told(mixture):
    env = make("pendulum", "action", 0.25, mixture=mixture, horizon=3)
    (*_, last) = video._episode(env, lambda obs: np.array([1.0]), constant([-2.0]), 0, 0.05)
    (dial,) = Overlay(env, CAPTION).dials(last)
    assert [end for end, _ in dial.bars] == [0.5, -1.0]  # of a torque of at most 2
    executed = [0.125] if mixture == "noisy" else [0.5, -1.0]  # half of 3/4 - 2/4
    assert any(dial.tick == pytest.approx(at) for at in executed)
    assert "α = 0.25" in Overlay(env, CAPTION)._against()


def test_without_opengl_the_remedy_is_told(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "mujoco.egl", None)
    with pytest.raises(UsageError, match=r"libegl1.*MUJOCO_GL"):
        cameras.offscreen()


def test_without_imageio_the_remedy_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(UsageError, match=r"rhucrl\[video\]"):
        video.record(make("pendulum"), lambda obs: np.ones(1), None, tmp_path / "film")


class Scripted(rhucrl.RHUCRL):
    """An agent that always does the same, and so does the adversary that it learned with."""

    policy = None

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.ones(1), None

    def adversary(self, obs, time):
        return jnp.array([1.2, 0.8])


def test_the_command_films_a_run_against_each_adversary(tmp_path, capsys, monkeypatch):
    agent = Scripted(make("pendulum", "adversarial", horizon=20))
    monkeypatch.setattr("rhucrl.training.agent.load", lambda folder, trust: agent)
    run = tmp_path / "run"
    assert cli.main(["video", str(run), "--against", "learned", "none", "--seconds", ".31"]) == 0
    out, progress = capsys.readouterr()
    names = [f"video-{one}.{kind}" for one in ("learned", "none") for kind in ("mp4", "gif")]
    assert out.split() == [str(run / name) for name in names]
    assert {path.name for path in run.iterdir()} == set(names)
    assert frames_of(run / names[0]) == frames_of(run / names[2]) == 7 + 20
    assert (run / names[1]).read_bytes() != (run / names[3]).read_bytes()
    assert "film video-learned  6/7" in progress
    assert cli.main(["video", str(run), "--output", str(tmp_path / "one.gif"), "--seconds", ".1"]) == 0  # learned
    assert capsys.readouterr().out.split() == [str(tmp_path / "one.mp4"), str(tmp_path / "one.gif")]
    two = ["--output", str(tmp_path / "two"), "--against", "none", "learned", "--seconds", ".1"]
    assert cli.main(["video", str(run), *two]) == 0
    assert capsys.readouterr().out.split()[::2] == [str(tmp_path / f"two-{one}.mp4") for one in ("none", "learned")]


def test_mistakes(capsys, tmp_path):
    assert cli.main(["video", "nowhere"]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert cli.main(["video", "x", "--seconds", "0"]) == 2
    assert "more than 0" in capsys.readouterr().err
    assert cli.main(["video", "x", "--against", "none", "wurst"]) == 2
    assert "did you mean 'worst'?" in capsys.readouterr().err
    for folder in ("a", "b"):
        (tmp_path / folder / "push").mkdir(parents=True)
    assert cli.main(["video", "x", "--against", str(tmp_path / "a" / "push"), str(tmp_path / "b" / "push")]) == 2
    assert "two adversaries are called push" in capsys.readouterr().err


def test_help_needs_no_simulator():
    code = "import sys, rhucrl.cli.envs; sys.exit(any(name in sys.modules for name in ('jax', 'mujoco', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_films_a_controller_against_a_saved_adversary(tmp_path, capsys, drawable, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make("inverted-pendulum", "adversarial", 10.0)
    member(env.game, "constant", [1.0, 1.0]).save(tmp_path / "push")
    film = ["video", "cascade", "--env", "inverted-pendulum", "--seconds", ".2"]
    assert cli.main([*film, "--against", str(tmp_path / "push")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"video-push.{kind}") for kind in ("mp4", "gif")]
    assert cli.main(film) == 0  # it learned with nobody
    assert capsys.readouterr().out.split() == [str(tmp_path / f"video-none.{kind}") for kind in ("mp4", "gif")]
    assert cli.main([*film, "--against", "learned"]) == 2
    assert "--against none" in capsys.readouterr().err
