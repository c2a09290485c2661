"""The replay in a real browser: what is drawn is where MuJoCo has it, meshes and height fields too, and the controls do
what they say."""

import time
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
from browser import Browser, Page, browser  # noqa: F401  # a fixture
from tiny import tiny
from viewing import crawler
from viewing.states import simulated

from echelon.cli import main
from echelon.runs.folder import RunFolder
from echelon.runs.replays import read_replay, replay_path
from echelon.runs.trained import Trained
from echelon.training.loop import train
from echelon.viewing.page import write_page
from echelon.viewing.recorder import record, to_replay
from echelon.viewing.scene import geoms, meshes

SEED = 11
BUTTON = "document.querySelector('.er-play').getAttribute('aria-label')"
CAPTION = "document.querySelector('.er-caption').textContent"


def page_of(folder: RunFolder, path: Path) -> Path:
    trained = Trained.load(folder)
    write_page(to_replay(trained, SEED, record(trained, "all", SEED)), path)
    return path


@pytest.fixture(scope="module")
def tab(browser: Browser, hopper: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:  # noqa: F811
    """A small window: a processor does the drawing here."""
    with browser.page(page_of(hopper, tmp_path_factory.mktemp("pages") / "hopper.html"), 480, 400) as page:
        page.wait_for("window.handle")
        yield page
        page.evaluate("1")
        assert page.errors == []
        assert page.requests == []


@pytest.fixture
def hopping(tab: Page) -> Page:
    """The hoppers' page, in front, at the leader's first frame, its picture in focus."""
    tab.front()
    tab.evaluate("handle.choose(0); handle.seek(0); document.querySelector('canvas').focus()")
    return tab


def shown(page: Page) -> np.ndarray:
    return np.array([[*body["pos"], *body["quat"]] for body in page.evaluate("handle.poses()")])


def turn_to(page: Page, control: str, value: str, event: str = "change") -> None:
    """Choose in a list, or move a slider."""
    place = f"document.querySelector('[aria-label={control}]')"
    page.evaluate(f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('{event}')) }})({place})")


def check_poses(page: Page, folder: RunFolder) -> None:
    """Three frames of every policy, position and orientation, by plain MuJoCo from the recorded states.

    1 mm is what is asked; half of the unit of 0.01 mm is what the format promises.
    """
    for tape in record(Trained.load(folder), "all", SEED):
        page.evaluate(f"handle.choose({tape.policy})")
        assert page.evaluate("handle.frames()") == len(tape.poses)
        for frame in (0, len(tape.poses) // 2, len(tape.poses) - 1):
            page.evaluate(f"handle.seek({frame})")
            drawn, truth = shown(page), simulated(tape, frame)
            assert np.abs(drawn[:, :3] - truth[:, :3]).max() < 1e-5
            same = np.abs((drawn[:, 3:] * truth[:, 3:]).sum(axis=1))  # q and -q are the same orientation
            assert same.min() > 1 - 1e-8


def test_bodies_are_drawn_where_mujoco_has_them(hopping: Page, hopper: RunFolder) -> None:
    check_poses(hopping, hopper)
    hopping.evaluate("handle.choose(0)")
    places = []
    for frame in (2, 2.25, 3):  # between frames bodies are on the way
        hopping.evaluate(f"handle.seek({frame})")
        places.append(shown(hopping)[:, :3])
    assert places[1] == pytest.approx(0.75 * places[0] + 0.25 * places[2], abs=1e-9)
    assert np.abs(places[2] - places[0]).max() > 1e-3


def test_a_hand_on_a_phone(browser: Browser, allegro: RunFolder, tmp_path: Path) -> None:  # noqa: F811
    """Its bodies are in place, everything fits the screen, and the replay can be taken off the page."""
    with browser.page(page_of(allegro, tmp_path / "hand.html"), 240, 200, dark=True) as page:
        page.wait_for("window.handle")
        check_poses(page, allegro)
        page.size(400, 640, phone=True)
        assert page.evaluate("document.documentElement.scrollWidth <= 400")
        inside = "[...document.querySelectorAll('.er-bar > *')].every((e) => e.getBoundingClientRect().right <= 400)"
        assert page.evaluate(inside)
        page.evaluate("handle.destroy()")
        assert page.evaluate("document.querySelectorAll('canvas, .echelon-replay').length") == 0
        time.sleep(0.1)
        page.evaluate("1")
        assert page.errors == []


def test_playing_goes_at_the_chosen_speed_and_slider_and_keys_seek_and_pause(hopping: Page) -> None:
    """Frames are 0.04 s apart: at a tenth of the speed each takes 0.4 s, on a busy machine more."""
    turn_to(hopping, "speed", "0.1")
    assert hopping.evaluate(BUTTON) == "play"
    hopping.click(".er-play")
    assert hopping.evaluate(BUTTON) == "pause"
    began = time.monotonic()
    hopping.wait_for("handle.frame() > 1")
    hopping.click(".er-play")
    reached = hopping.evaluate("handle.frame()")
    assert time.monotonic() - began > 0.2 * reached
    time.sleep(0.2)
    assert hopping.evaluate("handle.frame()") == reached
    hopping.evaluate("handle.play()")
    turn_to(hopping, "frame", "4", "input")
    assert hopping.evaluate("handle.frame()") == 4
    assert hopping.evaluate(BUTTON) == "play"
    assert hopping.evaluate("document.querySelector('.er-clock').textContent") == "0.16 s"
    # Keys step, choose and play.
    hopping.evaluate("handle.seek(5); document.querySelector('canvas').focus()")
    for keys, frame in ((".", 6), (",,", 4)):
        for key in keys:
            hopping.press(key)
        assert hopping.evaluate("handle.frame()") == frame
    hopping.press("]")
    assert hopping.evaluate(CAPTION).startswith("follower 1")
    hopping.press("Home")
    assert hopping.evaluate("handle.frame()") == 0
    for label in ("pause", "play"):
        hopping.press(" ")
        assert hopping.evaluate(BUTTON) == label
    hopping.press("?")
    assert "camera follows" in hopping.evaluate("document.querySelector('.er-keys').innerText")
    hopping.press("?")
    assert hopping.evaluate("document.querySelector('.er-keys').hidden")


def test_the_panel_names_the_policy_and_says_how_it_ended(hopping: Page) -> None:
    """The captions are of the leader's episode, whose twelve frames are 0.04 s apart."""
    assert hopping.evaluate("document.querySelector('.er-title').textContent") == "Hopper, cpo, iteration 1hopper"
    options = "[...document.querySelector('[aria-label=policy]').options].map(o => o.text)"
    assert hopping.evaluate(options) == ["leader", "follower 1", "follower 2"]
    hopping.evaluate("handle.seek(6)")
    before = shown(hopping)
    turn_to(hopping, "policy", "2")
    assert hopping.evaluate("handle.frame()") == 6
    assert np.abs(shown(hopping) - before).max() > 1e-4
    assert hopping.evaluate(CAPTION).startswith("follower 2 return ")
    for known, words in {
        "outcome: 'failed', length: 20": ", failed after 20 steps",
        "outcome: 'succeeded', length: 1": ", succeeded after 1 step",
        "outcome: 'time limit', length: 20": "",
        "outcome: 'cut', length: 24": ", cut after 0.48 s",
    }.items():
        said = hopping.evaluate(f"""(() => {{
            const episode = {{ ...replay.episodes[0], total_return: 1234.6, {known} }};
            const place = document.body.appendChild(document.createElement("div"));
            const other = EchelonReplay.mount(place, {{ ...replay, episodes: [episode] }}, {{ autoplay: false }});
            const said = place.querySelector(".er-caption").textContent;
            other.destroy();
            place.remove();
            return said;
        }})()""")
        assert said == f"leader return 1,235{words}"


def test_all_policies_move_on_one_clock(hopping: Page) -> None:
    """Side by side, in one place, or with the leader as a ghost: every one is where it is alone."""
    alone = []
    for policy in range(3):
        hopping.evaluate(f"handle.choose({policy}); handle.seek(7)")
        alone.append(shown(hopping))
    drawn = "handle.drawn().map((bodies) => bodies.map((body) => [...body.pos, ...body.quat]))"
    for view, who in (("grid", [0, 1, 2]), ("overlay", [0, 1, 2]), ("ghost", [2, 0]), ("one", [2])):
        hopping.evaluate(f"handle.show('{view}'); handle.choose(2); handle.seek(7)")
        assert np.array(hopping.evaluate(drawn)) == pytest.approx(np.array([alone[policy] for policy in who]), abs=1e-9)
    hopping.evaluate("handle.show('grid')")
    labels = hopping.evaluate("[...document.querySelectorAll('.er-labels span')].map((label) => label.textContent)")
    assert [label.rpartition(" ")[0] for label in labels] == ["leader", "follower 1", "follower 2"]
    hopping.evaluate("handle.show('one')")
    # The time line is linked to the picture.
    hopping.press("p")
    hopping.wait_for("document.querySelector('.er-timeline canvas').clientWidth > 100")
    bounds = "document.querySelector('.er-timeline canvas').getBoundingClientRect()"
    box = hopping.evaluate(f"(b => [b.x, b.y, b.width, b.height])({bounds})")
    middle = box[0] + 74 + (box[2] - 74 - 8) / 2
    for kind in ("mousePressed", "mouseReleased"):
        hopping.mouse(kind, middle, box[1] + box[3] / 2)
    assert hopping.evaluate("handle.frame()") == round((hopping.evaluate("handle.frames()") - 1) / 2)
    hopping.evaluate("document.querySelector('canvas').focus()")
    hopping.press("p")
    assert hopping.evaluate("document.querySelector('.er-timeline').hidden")


def picture(page: Page, path: Path) -> np.ndarray:
    """The window once nothing in it moves any more: the camera's motion is damped, and a busy machine draws slowly."""
    image, before = pytest.importorskip("PIL.Image"), None
    for _ in range(60):
        time.sleep(0.2)
        now = np.asarray(image.open(page.screenshot(path)).convert("RGB")).astype(float)
        if before is not None and np.array_equal(now, before):
            return now
        before = now
    raise AssertionError("the picture does not come to rest")


def test_the_mouse_turns_and_zooms_and_the_first_view_comes_back(hopping: Page, tmp_path: Path) -> None:
    """And the page is light or dark by its attribute, where no option was given."""
    hopping.click("[title='first view (r)']")
    views = [picture(hopping, tmp_path / "0.png")]
    hopping.mouse("mousePressed", 240, 150)
    for x in range(250, 340, 10):
        hopping.mouse("mouseMoved", x, 150, buttons=1)
    hopping.mouse("mouseReleased", 340, 150)
    views.append(picture(hopping, tmp_path / "1.png"))
    hopping.mouse("mouseWheel", 240, 150, deltaX=0, deltaY=-400)
    views.append(picture(hopping, tmp_path / "2.png"))
    hopping.click("[title='first view (r)']")
    views.append(picture(hopping, tmp_path / "3.png"))
    above = slice(40, 300)  # without the panel, whose buttons change under the mouse
    assert np.abs(views[1] - views[0])[above].mean() > 3
    assert np.abs(views[2] - views[1])[above].mean() > 3
    assert np.abs(views[3] - views[0])[above].mean() < 0.5
    hopping.evaluate("document.documentElement.dataset.theme = 'dark'")
    dark = picture(hopping, tmp_path / "dark.png")
    hopping.evaluate("delete document.documentElement.dataset.theme")
    assert views[3].mean() - dark.mean() > 80


def test_the_camera_follows_a_robot_that_leaves(hopping: Page, tmp_path: Path) -> None:
    """The torso, which is followed, stays at its place across the picture; it is the only thing that is blue."""

    def column(frame: int) -> float:
        hopping.evaluate(f"handle.seek({frame})")
        pixels = picture(hopping, tmp_path / "hopper.png")[40:300]
        blue = pixels[..., 2] - pixels[..., 0] > 45
        return float(np.nonzero(blue)[1].mean())

    last = hopping.evaluate("handle.frames()") - 1
    followed = abs(column(last) - column(0))
    hopping.evaluate("handle.seek(0)")
    hopping.click("[title='camera follows (f)']")
    left = abs(column(last) - column(0))
    hopping.click("[title='camera follows (f)']")
    assert left > 10
    assert followed < 5


def test_policies_through_their_training(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    """`record --checkpoint all`: every checkpoint's policies from the same start, as they were at that time."""
    folder = train(tiny("CartpoleSwingup", tmp_path / "run", iterations=3, env={"episode_length": 40}))
    page = tmp_path / "page.html"
    assert main(["record", str(folder.path), "--checkpoint", "all", "--out", str(page)]) == 0
    episodes = read_replay(replay_path(folder.path)).episodes
    assert [(one.iteration, one.policy) for one in episodes] == [(i, k) for i in (1, 2, 3) for k in range(3)]
    with browser.page(page, 480, 400) as tab:
        tab.wait_for("window.handle")
        for iteration, expected in ((1, 1), (2.7, 2), (99, 3), (0, 1)):
            tab.evaluate(f"handle.at({iteration}); handle.choose(2); handle.seek(9)")
            (tape,) = record(Trained.load(folder, expected), "2")
            assert np.abs(shown(tab)[:, :3] - tape.poses[9, :, :3]).max() < 1e-5
        assert tab.evaluate("[...document.querySelector('[aria-label=policy]').options].length") == 3
        assert tab.errors == []


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = str(tmp_path_factory.mktemp("runs") / "crawler")
    words = ["--env", "viewing.crawler:Crawler", "--device", "cpu", "--iterations", "2", "--out", out]
    assert main(["train", *words]) == 0
    assert main(["record", out, "--format", "html", "--seed", "11"]) == 0
    return RunFolder.open(out)


def test_vertices_are_where_the_model_has_them() -> None:
    """MuJoCo turns a mesh into its own frame, and the geom back: together they are the wheel that was given. A point of
    the ground is as high as a ray from above finds it."""
    model = crawler.build()
    shown = geoms(model)
    assert [geom.type for geom in shown] == ["hfield 0", "sphere", "box", *["mesh 0"] * 4]  # no collision shapes
    assert [geom.goal for geom in shown] == [False, True, *[False] * 5]
    assert shown[0].rgba == pytest.approx((0.3, 0.5, 0.3, 1.0), abs=0.01)  # the mean of its texture's two colours
    found = meshes(model, shown)
    assert list(found) == ["hfield 0", "mesh 0"]
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(shown[-1].quat))
    turned = found["mesh 0"].vertices @ matrix.reshape(3, 3).T + shown[-1].pos

    def triangles(corners: np.ndarray, order: np.ndarray) -> set[frozenset[tuple[float, ...]]]:
        return {frozenset(tuple(np.round(corner, 4) + 0.0) for corner in corners[face]) for face in order}

    assert triangles(turned, found["mesh 0"].faces) == triangles(crawler.VERTICES, crawler.FACES)
    data, hit = mujoco.MjData(model), np.zeros(1, np.int32)
    mujoco.mj_forward(model, data)
    ground = found["hfield 0"]
    assert len(ground.faces) == 2 * (crawler.ROWS - 1) * (crawler.COLUMNS - 1)
    for place in ground.vertices[ground.faces].mean(axis=1)[::37]:  # the middle of a triangle
        start = np.array([*place[:2], 5.0])
        above = mujoco.mj_ray(model, data, start, np.array([0.0, 0.0, -1.0]), None, 1, -1, hit)
        if model.geom(hit[0]).name == "ground":
            assert place[2] == pytest.approx(5.0 - above, abs=2e-3)


def test_meshes_are_drawn_in_the_browser(crawled: RunFolder, browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    """Bodies are in place; orange wheels, green ground and a goal of its own bright green are to be seen."""
    replay = read_replay(replay_path(crawled.path))
    assert [len(mesh.faces) for mesh in replay.meshes.values()] == [330, 4]  # once, though there are four wheels
    with browser.page(crawled.path / "replay" / "all.html", 480, 400) as page:
        page.wait_for("window.handle")
        check_poses(page, crawled)
        page.evaluate("handle.seek(0)")
        r, g, b = np.moveaxis(picture(page, tmp_path / "page.png")[:300], -1, 0)
        assert ((r > 120) & (r > 1.4 * g) & (g > 1.5 * b)).sum() > 50
        assert ((g > 60) & (g > 1.3 * r) & (g > 1.3 * b)).sum() > 5_000
        assert ((g > 150) & (g > 2.5 * r) & (g > 2.5 * b)).sum() > 30
        assert page.errors == []


def test_meshes_are_filmed_and_reported(
    crawled: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A film needs no replay: meshes that are too large for a page can be filmed."""
    assert main(["report", str(crawled.path), "--out", str(tmp_path / "report")]) == 0
    assert '"mesh 0":{' in (tmp_path / "report" / "index.html").read_text()
    monkeypatch.setattr("echelon.runs.replays.MAX_TRIANGLES", 300)
    replay_path(crawled.path).unlink()
    capsys.readouterr()
    assert main(["record", str(crawled.path), "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert "have 334 triangles, more than the 300 that a page can hold; record a film with --format mp4" in said
    film = pytest.importorskip("PIL.Image"), tmp_path / "film.gif"
    code = main(["record", str(crawled.path), "--out", str(film[1])])
    if code == 2 and "cannot draw without a display" in capsys.readouterr().err:
        pytest.skip("nothing can be drawn here")
    assert (code, replay_path(crawled.path).exists()) == (0, False)
    r, g, b = np.moveaxis(np.asarray(film[0].open(film[1]).convert("RGB")).astype(float), -1, 0)
    assert ((r > 60) & (r > 1.5 * g) & (g > 1.2 * b)).sum() > 20
