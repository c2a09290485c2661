"""The live view answers the browser that has its link, and no page from anywhere else: really started, and attacked."""

import http.client
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from browser import Browser, browser  # noqa: F401  # a fixture

pytest.importorskip("mujoco.studio.web_viewer", reason="this MuJoCo has no web viewer")

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from echelon.cli import main
from echelon.runs.folder import RunFolder
from echelon.viewing.guard import Guard


@dataclass
class Playing:
    """A live view that runs."""

    link: str
    port: int
    token: str
    pid: int

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """The answer to a plain request, with what a header may not be called in Python spelled with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.putrequest("GET", path, skip_host=True)
        for name, value in ({"Host": f"localhost:{self.port}"} | headers).items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        return connection.getresponse()


@pytest.fixture(scope="module")
def playing(hopper: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    log = tmp_path_factory.mktemp("play") / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "echelon.cli", "play", str(hopper.path)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"MUJOCO_GL": ""},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # else ignored, in the background
        )
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"http://localhost:(\d+)/\?token=([\w-]{32})\n", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield Playing(found[0].strip(), int(found[1]), found[2], process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()


def test_the_page_is_served_on_this_machine_alone_to_who_has_the_token(playing: Playing, hopper: RunFolder) -> None:
    page = playing.get(f"/?token={playing.token}")
    assert page.status == 200
    assert b"<html" in page.read().lower()
    if sys.platform == "linux":  # where all of 127.x.x.x reaches a server that listens to every network
        with socket.socket() as other_address:
            other_address.settimeout(5)
            assert other_address.connect_ex(("127.0.0.2", playing.port)) != 0
    assert main(["play", str(hopper.path), "--port", str(playing.port)]) == 2
    # Who has the token gets a cookie, and needs it no more.
    answer = playing.get(f"/?token={playing.token}")
    cookie = answer.headers["Set-Cookie"]
    assert cookie == f"echelon-{playing.port}={playing.token}; Path=/; HttpOnly; SameSite=Strict"
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert playing.get("/model?total_bytes", Cookie=cookie.split(";")[0]).status == 200
    refused = playing.get("/model?total_bytes")
    assert refused.status == 403
    assert playing.token not in str(refused.headers)
    assert playing.get("/model?total_bytes", Cookie=f"echelon-{playing.port}=wrong").status == 403


LISTENS, CONNECTED = "0A", "01"


def sockets(pid: int, state: str) -> set[tuple[str, str]]:
    """Ends, here and there, of a process's TCP sockets in a state; hexadecimal as in /proc."""
    own = set[str]()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            own.add(os.readlink(file))
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:] for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {(row[1], row[2]) for row in rows if row[3] == state and f"socket:[{row[9]}]" in own}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_its_other_port_hangs_up_on_every_other_process(playing: Playing) -> None:
    """And stays connected to its own."""
    public = f"0100007F:{playing.port:04X}"
    (inner,) = {here for here, _ in sockets(playing.pid, LISTENS)} - {public}
    assert inner.startswith("0100007F:")  # 127.0.0.1

    def connected() -> set[tuple[str, str]]:
        return {ends for ends in sockets(playing.pid, CONNECTED) if ends[0] == inner}

    deadline = time.monotonic() + 20
    while not (before := connected()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", int(inner[9:], 16)), timeout=20) as stranger:
            with suppress(ConnectionError):
                stranger.sendall(b"x" * 120)
            with suppress(ConnectionError):
                assert stranger.recv(1) == b""
    assert connected() == before != set()


def test_a_foreign_request_is_refused_even_with_the_token(playing: Playing) -> None:
    """A link in a mail opens the page, and so does a tunnel."""
    port = playing.port
    for reason, headers in [
        ("only on localhost", {"Host": f"evil.example:{port}"}),
        ("only on localhost", {"Host": f"localhost.evil.example:{port}"}),
        ("another origin", {"Origin": "http://evil.example"}),
        ("another origin", {"Origin": "http://localhost:1"}),
        ("another origin", {"Origin": "null"}),
        ("another site", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}),
        ("another site", {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}),
    ]:
        answer = playing.get(f"/?token={playing.token}", **headers)
        assert (answer.status, reason in answer.read().decode()) == (403, True), headers
    guard = Guard()
    clicked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    path = f"/?token={guard.token}"
    assert guard.refusal(path, Headers({"Host": "localhost:8080"} | clicked)) is None
    assert guard.refusal(path, Headers({"Host": "127.0.0.1:9000", "Origin": "http://127.0.0.1:9000"})) is None
    assert guard.refusal("/", Headers({"Host": "localhost:8080"} | clicked)) is not None
    assert guard.refusal(path, Headers([("Host", "localhost:8080"), ("Host", "evil.example")])) is not None
    assert guard.refusal(path, Headers({"Host": "localhost:8080", "Cookie": "a=[];;=b"})) is None


def test_websockets_need_token_and_origin_take_no_files_and_only_small_messages(playing: Playing) -> None:
    address = f"ws://localhost:{playing.port}"
    for path in ("/state?sid=a", "/ui?sid=a", "/drop?sid=a"):
        for origin, token in (
            (f"http://localhost:{playing.port}", "wrong"),
            ("http://evil.example", playing.token),
            ("null", playing.token),
        ):
            with pytest.raises(InvalidStatus), connect(f"{address}{path}&token={token}", origin=origin):  # pyright: ignore
                pass
    with pytest.raises(InvalidStatus), connect(f"{address}/drop?sid=a&token={playing.token}"):
        pass
    with connect(f"{address}/state?sid=a&token={playing.token}", max_size=None) as stream:
        assert stream.recv(timeout=20)  # it works
        stream.send(b"x" * (1 << 21))
        with pytest.raises(ConnectionClosed) as closed:
            [stream.recv(timeout=20) for _ in range(10_000)]
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009  # too big


READ = """new Promise(done => {{
    const socket = new WebSocket("ws://localhost:{port}/state?sid=probe");
    socket.onmessage = () => done("read");
    socket.onclose = socket.onerror = () => done("refused");
}})"""
TAKE = READ.replace("/state?sid=probe", "/ui?sid=probe")
FETCH = """fetch("http://localhost:{port}/model?total_bytes", {{credentials: "include"}})
    .then(answer => answer.text()).catch(() => "refused")"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


def test_a_page_of_another_origin_cannot_read_or_drive_it_and_the_printed_link_can(
    playing: Playing,
    browser: Browser,  # noqa: F811
    tmp_path: Path,
) -> None:
    """In one browser that has the cookie; localhost on another port is the same site to it."""
    (tmp_path / "evil.html").write_text("<!doctype html><title>evil</title>")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        with browser.page(playing.link) as page:
            page.wait_for("document.querySelector('canvas')")
            assert page.evaluate(READ.format(port=playing.port)) == "read"
            assert '"total_bytes"' in page.evaluate(FETCH.format(port=playing.port))
            for place in (f"http://localhost:{evil.server_port}/evil.html", tmp_path / "evil.html"):
                with browser.page(place) as stranger:
                    for attempt in (READ, TAKE, FETCH):
                        assert stranger.evaluate(attempt.format(port=playing.port)) == "refused"
            page.front()
            assert page.evaluate(READ.format(port=playing.port)) == "read"
        evil.shutdown()
    with browser.page(playing.link.split("?")[0]) as page:  # it has been let in before
        assert page.evaluate("document.querySelector('canvas') !== null")
