"""A robot with meshes on a height field: trained, filmed, replayed in a browser and reported, as its model has it."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from browser import Browser, browser  # noqa: F401  # a fixture
from viewing import crawler
from viewing.test_replay_page import check_poses, picture

from echelon.cli import main
from echelon.runs.folder import RunFolder
from echelon.runs.replays import read_replay, replay_path
from echelon.viewing.scene import geoms, meshes


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
    vertices, faces = crawler.gear()
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(shown[-1].quat))
    turned = found["mesh 0"].vertices @ matrix.reshape(3, 3).T + shown[-1].pos

    def triangles(corners: np.ndarray, order: np.ndarray) -> set[frozenset[tuple[float, ...]]]:
        return {frozenset(tuple(np.round(corner, 4) + 0.0) for corner in corners[face]) for face in order}

    assert triangles(turned, found["mesh 0"].faces) == triangles(vertices, faces)
    data, hit = mujoco.MjData(model), np.zeros(1, np.int32)
    mujoco.mj_forward(model, data)
    ground = found["hfield 0"]
    assert len(ground.faces) == 2 * (crawler.ROWS - 1) * (crawler.COLUMNS - 1)
    for place in ground.vertices[ground.faces].mean(axis=1)[::37]:  # the middle of a triangle
        start = np.array([*place[:2], 5.0])
        above = mujoco.mj_ray(model, data, start, np.array([0.0, 0.0, -1.0]), None, 1, -1, hit)
        if model.geom(hit[0]).name == "ground":
            assert place[2] == pytest.approx(5.0 - above, abs=2e-3)


def test_it_is_drawn_in_the_browser(crawled: RunFolder, browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    """Bodies are in place; orange wheels, green ground and a goal of its own bright green are to be seen."""
    replay = read_replay(replay_path(crawled))
    assert [len(mesh.faces) for mesh in replay.meshes.values()] == [330, 72]  # once, though there are four wheels
    with browser.page(crawled.path / "replay" / "all.html", 480, 400) as page:
        page.wait_for("window.handle")
        check_poses(page, crawled)
        page.evaluate("handle.seek(0)")
        r, g, b = np.moveaxis(picture(page, tmp_path / "page.png")[:300], -1, 0)
        assert ((r > 120) & (r > 1.4 * g) & (g > 1.5 * b)).sum() > 50
        assert ((g > 60) & (g > 1.3 * r) & (g > 1.3 * b)).sum() > 5_000
        assert ((g > 150) & (g > 2.5 * r) & (g > 2.5 * b)).sum() > 30
        assert page.errors == []


def test_it_is_filmed_and_reported(
    crawled: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A film needs no replay: meshes that are too large for a page can be filmed."""
    assert main(["report", str(crawled.path), "--out", str(tmp_path / "report")]) == 0
    assert '"mesh 0":{' in (tmp_path / "report" / "index.html").read_text()
    monkeypatch.setattr("echelon.runs.replays.MAX_TRIANGLES", 400)
    replay_path(crawled).unlink()
    capsys.readouterr()
    assert main(["record", str(crawled.path), "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert "have 402 triangles, more than the 400 that a page can hold; record a film with --format mp4" in said
    film = pytest.importorskip("PIL.Image"), tmp_path / "film.gif"
    code = main(["record", str(crawled.path), "--out", str(film[1])])
    if code == 2 and "cannot draw without a display" in capsys.readouterr().err:
        pytest.skip("nothing can be drawn here")
    assert (code, replay_path(crawled).exists()) == (0, False)
    r, g, b = np.moveaxis(np.asarray(film[0].open(film[1]).convert("RGB")).astype(float), -1, 0)
    assert ((r > 60) & (r > 1.5 * g) & (g > 1.2 * b)).sum() > 20
