"""What is recorded is what the simulation did; `echelon record` from the command line, and a replay in a notebook."""

import html
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import mujoco
import numpy as np
import pytest
import torch
from rollout.stub_env import DriftEnv
from tiny import tiny
from viewing.states import simulated

import echelon
from echelon.cli import main
from echelon.commands.record import Record, _format
from echelon.commands.train import _ending
from echelon.config import TaskConfig
from echelon.envs.contract import Env, Step
from echelon.errors import UserError
from echelon.runs.folder import RunFolder
from echelon.runs.replays import read_replay, replay_path
from echelon.runs.trained import Trained
from echelon.tasks import make
from echelon.tasks.hopper.task import HopperConfig
from echelon.training.loop import train
from echelon.viewing.page import replay_page
from echelon.viewing.recorder import PolicyRunner, _outcome, record, record_episode, to_replay
from echelon.viewing.scene import camera, geoms

CPU = torch.device("cpu")


def test_poses_are_those_of_the_states(hopper: RunFolder, allegro: RunFolder) -> None:
    """The hand's goal is a mocap body whose orientation is drawn at the start, after the physics was reset."""
    tapes = [*record(Trained.load(hopper)), *record(Trained.load(allegro))]
    for tape in tapes:
        for frame in range(len(tape.poses)):
            assert tape.poses[frame] == pytest.approx(simulated(tape, frame), abs=1e-6)
    hand, goal = tapes[3], tapes[3].model.body("goal").id
    assert np.abs(hand.poses[0, goal, 3:] - hand.model.body_quat[goal]).max() > 0.01
    assert hand.poses[0, goal, 3:] == pytest.approx(hand.mocap[0, 0, 3:])


@pytest.mark.parametrize("falls", [False, True])
def test_states_are_those_of_the_policy_in_its_environment(hopper: RunFolder, falls: bool) -> None:
    """By a plain loop. A frame is two control steps of 0.02 s, the nearest to a thirtieth of a second.

    Where falling ends an episode, what is recorded ends with it. The LSTM's state goes along.
    """
    task = HopperConfig(episode_length=24) if falls else hopper.config.env

    def hops(num_envs: int, device: torch.device, seed: int) -> Env:
        return make("Hopper", task, num_envs, device, seed)

    for tape in record(Trained.load(hopper, make_env=hops), "all", seed=5):
        assert tape.outcome == ("failed" if falls else "time limit")
        env = hops(1, CPU, 5)
        model = Trained.load(hopper).model
        obs, state, total = env.reset(), torch.zeros(1, model.state_dim), 0.0
        for t in range(tape.length):
            if t % 2 == 0:
                assert tape.qpos[t // 2] == pytest.approx(env.engine.qpos[0].numpy(), abs=1e-12)  # pyright: ignore
            with torch.no_grad():
                start = torch.zeros(1, 1, dtype=torch.bool)
                output = model({"policy": obs["policy"][None]}, torch.tensor([tape.policy]), state, start)
            step = env.step(output.mean[0].clamp(-1, 1))
            obs, state, total = step.obs, output.state, total + float(step.reward)
        assert bool(step.terminated | step.truncated)
        assert bool(step.terminated) == falls
        assert tape.seconds == pytest.approx(0.02 * tape.length)
        assert tape.total_return == pytest.approx(total, abs=1e-5)
        assert len(tape.qpos) == (tape.length + 1) // 2
        assert tape.frame_s == pytest.approx(0.04)


def test_rewards_actions_and_the_distance_to_the_leader_go_along(hopper: RunFolder, allegro: RunFolder) -> None:
    """Rewards sum to the return, terms to the reward; the leader is at distance 0 from itself; a follower's distance
    at the start is that of the two Gaussians, by the formula in float64."""
    for tape in (*record(Trained.load(hopper), seed=5), *record(Trained.load(allegro), seed=5)):
        assert all(len(values) == len(tape.poses) for values in tape.series.values())
        assert tape.series["reward"].sum() == pytest.approx(tape.total_return, abs=1e-4)
        terms = [values for name, values in tape.series.items() if name.startswith("reward/")]
        assert not terms or np.sum(terms, axis=0) == pytest.approx(tape.series["reward"], abs=1e-5)
        assert (tape.series["kl"] >= 0).all()
        assert (tape.series["kl"] == 0).all() == (tape.name == "leader")
    trained = Trained.load(hopper)
    env = trained.make_env(1, CPU, 5)
    obs, start = {"policy": env.reset()["policy"][None]}, torch.zeros(1, 1, dtype=torch.bool)
    with torch.no_grad():
        looks = [trained.model(obs, torch.tensor([k]), torch.zeros(1, trained.model.state_dim), start) for k in (0, 2)]
    (mu, log_s), (mu_i, log_i) = ((x.mean[0, 0].double(), x.log_std[0].double()) for x in looks)
    kl = (log_s - log_i + (torch.exp(2 * log_i) + (mu_i - mu) ** 2) / (2 * torch.exp(2 * log_s)) - 0.5).sum()
    (tape,) = record(trained, "2", seed=5)
    assert tape.series["kl"][0] == pytest.approx(kl.item(), rel=1e-3, abs=1e-7)
    assert tape.series["action/0"][0] == pytest.approx(mu_i[0].clamp(-1, 1).item(), abs=1e-5)


def test_the_path_of_a_point_is_recorded(tmp_path: Path) -> None:
    """DeceptiveReach has no physics: its drawing's poses are the task's own positions, step by step. What has no
    drawing cannot be shown."""
    folder = train(tiny("DeceptiveReach", tmp_path / "reach", iterations=1))
    (tape,) = record(Trained.load(folder), "1", seed=5)
    actor = PolicyRunner(Trained.load(folder), 1, 5)
    actor.reset()
    for place in tape.poses[:, tape.model.body("point").id, :2]:
        assert place == pytest.approx(actor.env.position[:, 0].numpy(), abs=1e-6)  # pyright: ignore
        actor.step()
    assert len(tape.poses) == tape.length
    assert echelon.replay(folder, "1").replay.bodies == ("world", "point")
    config = replace(folder.config, task="Drift", env=TaskConfig(), out=str(tmp_path / "drift"))
    drifting = train(config, make_env=lambda num_envs, device, seed: DriftEnv(num_envs, seed))
    with pytest.raises(UserError, match="DriftEnv is not simulated by MuJoCo"):
        echelon.replay(drifting, make_env=lambda num_envs, device, seed: DriftEnv(num_envs, seed))


def test_geoms_of_one_environment(allegro: RunFolder) -> None:
    """Those that differ between environments are shown as they are in the recorded one. Groups from 3 on are collision
    shapes. A material's colour counts where the geom has none of its own."""

    def large_cube(num_envs: int, device: torch.device, seed: int) -> Env:
        env = make("AllegroHand", allegro.config.env, num_envs, device, seed)
        engine = env.engine  # pyright: ignore[reportAttributeAccessIssue]  # a MuJoCo task
        cube = engine.model.geom("cube").id
        engine.expand("geom_size")[:, cube] *= 1.5
        engine.expand("geom_rgba")[:, cube] = torch.tensor([0.1, 0.2, 0.3, 1.0])
        return env

    replay = echelon.replay(allegro, "leader", make_env=large_cube).replay
    (cube,) = (geom for geom in replay.episodes[0].geoms if geom.rgba == pytest.approx((0.1, 0.2, 0.3, 1.0)))
    assert cube.size == pytest.approx((0.04875,) * 3)
    model = mujoco.MjModel.from_xml_string("""
        <mujoco>
          <asset><material name="m" rgba="0.1 0.2 0.3 1"/></asset>
          <worldbody>
            <geom type="plane" size="0 0 1"/>
            <body pos="0 0 1"><joint/>
              <geom type="sphere" size="0.1" material="m"/>
              <geom type="capsule" size="0.1 0.2" material="m" rgba="1 0 0 1"/>
              <geom type="box" size="1 2 3" group="3"/>
              <geom type="cylinder" size="0.1 0.2" rgba="0 0 0 0"/>
              <geom type="ellipsoid" size="0.1 0.2 0.3" pos="1 2 3" quat="0 1 0 0"/>
              <site type="sphere" size="0.01" rgba="0 1 0 1"/>
              <site type="sphere" size="0.01" rgba="0 1 0 1" group="4"/>
            </body>
          </worldbody>
        </mujoco>""")
    found = geoms(model)
    assert [geom.type for geom in found] == ["plane", "sphere", "capsule", "ellipsoid", "sphere"]
    assert [geom.body for geom in found] == [0, 1, 1, 1, 1]
    assert [geom.rgba for geom in found[1:3]] == [pytest.approx((0.1, 0.2, 0.3, 1.0)), (1.0, 0.0, 0.0, 1.0)]
    assert (found[3].pos, found[3].quat) == ((1.0, 2.0, 3.0), (0.0, 1.0, 0.0, 0.0))
    assert found[4].rgba == (0.0, 1.0, 0.0, 1.0)


def test_the_ground_is_the_worlds() -> None:
    """A page draws no other, and mjlab's is on a fixed body: at 0.5 - 0.2 here. A plane with an end stays there."""
    model = mujoco.MjModel.from_xml_string("""
        <mujoco>
          <worldbody>
            <body pos="1 0 0.5">
              <geom type="plane" size="0 0 1" pos="0 0 -0.2"/>
              <geom type="plane" size="2 2 1" pos="0 0 -0.2"/>
            </body>
          </worldbody>
        </mujoco>""")
    upright = (1.0, 0.0, 0.0, 0.0)
    found = [(geom.body, geom.pos, geom.quat) for geom in geoms(model)]
    assert found == [(0, (1.0, 0.0, 0.3), upright), (1, (0.0, 0.0, -0.2), upright)]


def test_the_camera_sees_what_mujocos_sees(hopper: RunFolder) -> None:
    """The hopper's camera tracks the torso; its eye and direction are those MuJoCo computes."""
    (tape,) = record(Trained.load(hopper), "leader")
    seen = camera(tape.model, tape.qpos[0])
    data = mujoco.MjData(tape.model)
    data.qpos[:] = tape.qpos[0]
    mujoco.mj_forward(tape.model, data)
    assert seen.follow == tape.model.body("torso").id
    assert seen.eye == pytest.approx(data.cam_xpos[0], abs=1e-9)
    direction = np.array(seen.target) - seen.eye
    assert direction / np.linalg.norm(direction) == pytest.approx(-data.cam_xmat[0].reshape(3, 3)[:, 2], abs=1e-9)
    assert abs(np.linalg.norm(direction) - 3.1) < 0.3  # the torso is about 3.1 m from the camera
    assert seen.fovy == 38.0


@pytest.mark.parametrize("joint", ["<freejoint/>", '<joint type="hinge" axis="0 1 0"/>'])
def test_a_robot_on_wide_ground_fills_the_picture(joint: str) -> None:
    """MuJoCo's extent of the scene is that of the ground, 40 m wide; the robot's box has a diagonal of 0.66 m. The view
    is about as far from it as on infinite ground, whether it walks or is fixed, wherever it stands, and far enough for
    a goal 3 m away: half of a picture with MuJoCo's 45 degrees is 0.41 of the distance high, 0.62 wide."""

    def distance(ground: str, goal: str = "") -> float:
        model = mujoco.MjModel.from_xml_string(f"""
          <mujoco>
            <worldbody>
              <geom type="{ground}"/>
              <body pos="3 -2 0.4">{joint}<geom type="box" size="0.3 0.1 0.1"/></body>{goal}
            </worldbody>
            <asset><hfield name="hills" nrow="2" ncol="2" size="20 20 1 0.1"/></asset>
          </mujoco>""")
        view = camera(model, model.qpos0)
        if not goal:
            assert view.target == pytest.approx((3, -2, 0.4), abs=0.1)
        return float(np.linalg.norm(np.subtract(view.eye, view.target)))

    for ground in ('hfield" hfield="hills', 'box" size="20 20 0.1', 'plane" size="20 20 0.1', 'plane" size="0 0 1'):
        assert 0.66 < distance(ground) < 4 * 0.66
        for goal in ('<site name="goal" pos="6 -2 0.4"/>', '<body name="target" pos="6 -2 0.4"><site/></body>'):
            assert 3.0 < 0.62 * distance(ground, goal) < 2 * 3.0


def test_names_follow_the_leader_and_an_actor_its_episodes(hopper: RunFolder) -> None:
    run = Trained.load(hopper)
    assert [run.name(policy) for policy in range(3)] == ["leader", "follower 1", "follower 2"]
    population = replace(run, leader=1)
    assert [population.name(policy) for policy in range(3)] == ["follower 0", "leader", "follower 2"]
    replay = to_replay(population, 0, record(population, "leader"))
    assert (replay.leader, replay.episodes[0].policy, replay.episodes[0].name) == (1, 1, "leader")
    # The live view shows episode after episode: the recurrent state starts at zero with each.
    actor = PolicyRunner(Trained.load(hopper), 0, 7)
    assert record_episode(actor).length > 0
    assert not actor._player.state.any()
    assert not any(bool(actor.step().terminated) for _ in range(3))


def test_the_last_step_decides_the_outcome() -> None:
    for ended, before, successes, outcome in [
        ("terminated", 0.0, None, "failed"),  # a hopper falls; its task counts no successes
        ("terminated", 0.0, 0.0, "failed"),  # a cube is lifted that should be pushed
        ("terminated", 0.0, 1.0, "succeeded"),  # a cube arrives
        ("terminated", 49.0, 50.0, "succeeded"),  # the last of AllegroKuka's goals
        ("terminated", 3.0, 3.0, "failed"),  # a hand drops the cube after three goals
        ("truncated", 3.0, 4.0, "time limit"),
        ("", 3.0, 4.0, "cut"),
    ]:
        log = {} if successes is None else {"episode/successes": torch.tensor([successes])}
        terminated, truncated = (torch.tensor([ended == name]) for name in ("terminated", "truncated"))
        assert _outcome(Step({}, torch.zeros(1), terminated, truncated, {}, log), before) == outcome


def test_a_page_and_the_replay(hopper: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", str(hopper.path), "--format", "html", "--policy", "1", "--seed", "4"]) == 0
    page = hopper.path / "replay" / "1.html"
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("follower 1 ")
    assert said.endswith(f"Written to {page}\n")
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "http://" not in text.split("EchelonReplay.mount(")[1]
    assert text.count("<script>") == 2 == text.count("</script>")
    replay = read_replay(replay_path(hopper.path))
    assert (replay.run, replay.task, replay.algo, replay.iteration, replay.seed) == ("hopper", "Hopper", "cpo", 1, 4)
    assert replay.bodies == ("world", "torso", "thigh", "shank", "foot")
    ((tape,), (episode,)) = record(Trained.load(hopper), "1", seed=4), replay.episodes
    assert episode.policy == 1
    assert np.abs(episode.poses[..., :3] - tape.poses[..., :3]).max() < 1e-5
    # The run's name cannot break the page.
    hostile = replay_page(replace(replay, run="</script><script>alert(1)</script>", task="<b>"))
    assert hostile.count("</script>") == 2
    assert "<b>" not in hostile.split("<script>")[0]


def test_it_says_how_an_episode_ended(
    hopper: RunFolder, franka: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A success is not called a failure. A hopper's episode lasts 24 steps of 0.02 s; a recording of a minute, here
    shortened to 0.1 s, is cut."""

    def said(run: RunFolder) -> str:
        assert main(["record", str(run.path), "--format", "html", "--policy", "leader"]) == 0
        return capsys.readouterr().out

    assert re.match(r"leader +return +\d+\.\d\d, succeeded after 1 step\n", said(franka))
    assert ", ended at its time limit after 24 steps\n" in said(hopper)
    monkeypatch.setattr("echelon.viewing.recorder.MAX_RECORDING_S", 0.1)
    assert ", cut after 0.1 s, 5 steps\n" in said(hopper)


def test_a_film_leaves_the_replay_alone(hopper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A film of one policy must not take the others out of the report; without a replay it leaves its own. The file's
    ending decides the format, or what is installed."""
    drawn: list[int] = []
    monkeypatch.setattr("echelon.commands.record.require_package", lambda *package: None)
    monkeypatch.setattr("echelon.viewing.video.draw", lambda tapes, out, format: drawn.append(len(tapes)))
    assert main(["record", str(hopper.path), "--format", "html"]) == 0
    film = ["record", str(hopper.path), "--policy", "1", "--out", str(tmp_path / "film.gif")]
    assert main(film) == 0
    assert [episode.policy for episode in read_replay(replay_path(hopper.path)).episodes] == [0, 1, 2]
    replay_path(hopper.path).unlink()
    assert main(film) == 0
    assert [episode.policy for episode in read_replay(replay_path(hopper.path)).episodes] == [1]
    assert drawn == [1, 1]
    assert _format(Record("run", out="film.GIF"), ("PIL",)) == "gif"
    assert _format(Record("run", out="film.bin", format="mp4"), ("PIL",)) == "mp4"
    for installed, format in ((None, "html"), (True, "mp4")):
        monkeypatch.setattr("echelon.errors.find_spec", lambda name, found=installed: found)
        assert _format(Record("run"), ("PIL",)) == format


def test_another_checkpoint_leaves_the_replay_of_the_newest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports show it beside scores of the newest. That checkpoint given by its number is the newest, too."""
    monkeypatch.setattr("echelon.commands.record.require_package", lambda *package: None)
    monkeypatch.setattr("echelon.viewing.video.draw", lambda tapes, out, format: None)
    run = train(tiny("Hopper", tmp_path / "run", env={"episode_length": 5})).path
    page = ["record", str(run), "--format", "html", "--policy", "leader", "--checkpoint"]
    film = [*page, "1", "--out", str(tmp_path / "film.gif"), "--format", "gif"]
    for words in ([*page, "1"], film):
        assert main(words) == 0
        assert not replay_path(run).exists()
    assert "iteration 1: run" in (run / "replay" / "leader.html").read_text()
    assert echelon.replay(run, "leader", checkpoint=1).replay.iteration == 1
    assert not replay_path(run).exists()
    for which in ("2", "newest", "all"):
        assert main([*page, which]) == 0
        assert read_replay(replay_path(run)).iteration == 2
        replay_path(run).unlink()


def test_a_mistake_is_one_sentence(
    hopper: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that need a run to be noticed."""
    for words, expected in {
        "play RUN --policy all": "--policy is leader or a number from 0 to 2, not all",
        "record RUN --policy 7": "--policy is leader, all or a number from 0 to 2, not 7",
        "record RUN --out film.gif --checkpoint all": "a film shows one checkpoint; add --format html",
        "record RUN --out /proc/page.html": "/proc/page.html cannot be written: ",
    }.items():
        code = main([str(hopper.path) if word == "RUN" else word for word in words.split()])
        said = capsys.readouterr().err
        assert (code, expected in said, said.count("\n")) == (2, True, 1), (words, said)
    for format, missing in (("mp4", "imageio_ffmpeg"), ("mp4", "PIL"), ("gif", "PIL")):
        monkeypatch.setattr("echelon.errors.find_spec", lambda name, missing=missing: None if name == missing else True)
        assert main(["record", str(hopper.path), "--format", format]) == 2
        said = capsys.readouterr().err
        assert f"{missing}, which is not installed; pip install -e '.[video]' in Echelon's clone\n" in said


def test_a_mujoco_without_the_viewer_records_and_is_not_told_to_play(
    hopper: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """mjlab pins MuJoCo 3."""
    record, play = (f"echelon {command} {hopper.path}\n" for command in ("record", "play"))
    ending = _ending([hopper], "1 s", "")
    assert (record in ending, play in ending) == (True, True)
    assert _ending([replace(hopper, shown=False)], "1 s", "").count("echelon") == 2  # evaluate, report
    monkeypatch.setattr("echelon.errors.PathFinder", Mock(find_spec=lambda name, path: None))
    ending = _ending([hopper], "1 s", "")
    assert (record in ending, play in ending) == (True, False)
    assert main(["play", str(hopper.path)]) == 2
    told = f"echelon play needs MuJoCo 4, not {mujoco.__version__}; if your simulator pins that, as mjlab does, take"
    assert capsys.readouterr().err == f"echelon: {told} echelon record\n"


def test_a_replay_shows_itself_in_a_notebook(hopper: RunFolder, tmp_path: Path) -> None:
    shown = echelon.replay(hopper.path, "leader")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" [^<>]*></iframe>', shown._repr_html_())
    assert frame is not None
    assert html.unescape(frame[1]) == replay_page(shown.replay)
    assert re.fullmatch(r"replay of hopper after iteration 1: leader -?[\d.]+", repr(shown))
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == replay_page(shown.replay)
    with pytest.raises(UserError, match="there is no run folder"):
        echelon.replay(tmp_path / "nowhere")
