"""Films: both files, as many frames as the episode has, arrows where forces are, and clear words without OpenGL."""

import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from rhucrl import cli
from rhucrl.config import TrainConfig
from rhucrl.envs import make
from rhucrl.errors import UsageError
from rhucrl.evaluation.adversaries import member
from rhucrl.experiments import video

imageio = pytest.importorskip("imageio.v2")
ffmpeg = pytest.importorskip("imageio_ffmpeg")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # films are read by a process too


@pytest.fixture
def drawable(monkeypatch):
    """A place to draw, in a process that has not decided on another one."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    try:
        video._offscreen().free()
    except UsageError as error:
        pytest.skip(str(error))


def frames_of(path):
    return ffmpeg.count_frames_and_secs(str(path))[0]


def constant(value):
    return lambda obs, time: np.asarray(value, np.float32)


def test_the_pendulum(tmp_path):
    env = make("pendulum", "adversarial", horizon=12)
    mp4, gif = video.record(env, lambda obs: np.ones(1), constant([1.2, 0.8]), tmp_path / "swing.any")
    assert (mp4.name, gif.name) == ("swing.mp4", "swing.gif")
    frames = imageio.mimread(gif)
    assert frames_of(mp4) == 13  # every step, and the start
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 100


def test_a_robot_with_its_forces_as_arrows(tmp_path, drawable):
    env = make("inverted-pendulum", "adversarial", horizon=3)

    def last(force):
        _, gif = video.record(env, lambda obs: np.zeros(1), constant(force), tmp_path / "film", seconds=0.05)
        return np.asarray(imageio.mimread(gif)[-1], int)[..., :3]

    def red(frame):
        return ((frame[..., 0] > 90) & (frame[..., 1] < 50) & (frame[..., 2] < 50)).sum()

    assert red(last([10, 10])) > 100 > red(last([0, 0]))


def test_without_opengl_the_remedy_is_told(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "mujoco.egl", None)
    with pytest.raises(UsageError, match=r"libegl1.*MUJOCO_GL"):
        video._offscreen()


def test_without_imageio_the_remedy_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(UsageError, match=r"rhucrl\[video\]"):
        video.record(make("pendulum"), lambda obs: np.ones(1), None, tmp_path / "film")


def test_the_command_films_a_run(tmp_path, capsys, monkeypatch):
    config = TrainConfig(horizon=20)
    agent = SimpleNamespace(
        config=config,
        predict=lambda obs, deterministic: (np.ones(1), None),
        adversary=lambda obs, time: jnp.array([1.2, 0.8]),
    )
    monkeypatch.setattr("rhucrl.load", lambda folder: agent, raising=False)
    for against in ("learned", "none"):
        assert cli.main(["video", str(tmp_path / "run"), "--against", against, "--seconds", ".31"]) == 0
        files = capsys.readouterr().out.split()
        assert files == [str(tmp_path / "run" / f"video.{kind}") for kind in ("mp4", "gif")]
        assert frames_of(files[0]) == 7


def test_mistakes(capsys):
    assert cli.main(["video", "nowhere"]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert cli.main(["video", "x", "--seconds", "0"]) == 2
    assert "more than 0" in capsys.readouterr().err
    assert cli.main(["video", "x", "--against", "wurst"]) == 2
    assert "did you mean 'worst'?" in capsys.readouterr().err


def test_help_needs_no_simulator():
    code = "import sys, rhucrl.cli_envs; sys.exit(any(name in sys.modules for name in ('jax', 'mujoco', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_films_a_controller_against_a_saved_adversary(tmp_path, capsys, drawable):
    env = make("inverted-pendulum", "adversarial", 10.0)
    member(env.game, "constant", [1.0, 1.0]).save(tmp_path / "push")
    film = ["video", "cascade", "--env", "inverted-pendulum", "--output", str(tmp_path / "film"), "--seconds", ".2"]
    assert cli.main([*film, "--against", str(tmp_path / "push")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"film.{kind}") for kind in ("mp4", "gif")]
    assert cli.main(film) == 2
    assert "--against none" in capsys.readouterr().err
