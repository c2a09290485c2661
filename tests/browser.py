"""Pages in a real browser: headless Chromium, spoken to over its DevTools protocol.

Without Chromium, tests with the fixture `browser` are skipped and say why. `websockets` comes with MuJoCo.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"),  # WebGL by the processor
    *("--disable-background-networking", "--disable-extensions", "--remote-debugging-port=0"),
)
KEY_CODES = {"Enter": 13, "End": 35, "Home": 36}
PATIENCE_S = 60.0


def find_chromium() -> str | None:
    """The browser's path: the environment's CHROMIUM, or what is installed."""
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, browser: "Browser", target: str, address: str) -> None:
        self._browser, self._target, self._own = browser, target, address
        attached = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        self.errors: list[str] = []
        """Messages of the console at level error, and uncaught exceptions."""
        self.requests: list[str] = []
        """Addresses that the page asked for beyond its own file, data and blobs."""
        browser.listeners[self._session] = self._hear
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Any command of the DevTools protocol."""
        return self._browser.call(method, params, self._session)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for. An exception fails the test."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(_exception(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, condition: str, timeout: float = 30.0) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + timeout
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"not true within {timeout} s: {condition}; errors: {self.errors}")
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """A real mouse click in the middle of the first element that matches; again if the page moved under it."""
        place = f"document.querySelector({json.dumps(selector)})"
        bounds = f"{place}.getBoundingClientRect()"
        listen = "addEventListener('click', () => window.clicked = true, {capture: true, once: true})"
        self.evaluate(f"window.clicked = false; {place}.{listen}")
        for _ in range(5):
            self.evaluate(f"{place}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
            box, before = [], None
            while box != before:  # the page may still be laid out
                before, box = box, self.evaluate(f"(b => [b.x, b.y, b.width, b.height])({bounds})")
                time.sleep(0.02)
            self.mouse("mousePressed", box[0] + box[2] / 2, box[1] + box[3] / 2)
            self.mouse("mouseReleased", box[0] + box[2] / 2, box[1] + box[3] / 2)
            if self.evaluate("window.clicked !== false"):  # undefined on a page that the click opened
                return
        raise AssertionError(f"{selector} cannot be clicked; errors: {self.errors}")

    def mouse(self, kind: str, x: float, y: float, button: str = "left", **more: Any) -> None:
        """mousePressed, mouseReleased, mouseMoved (`buttons=1` while dragging) or mouseWheel (`deltaX`, `deltaY`)."""
        clicks = 0 if kind in ("mouseMoved", "mouseWheel") else 1
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=clicks, **more)

    def press(self, key: str) -> None:
        """A key of the keyboard by its name in JavaScript (`Home`, `Enter`, ` `)."""
        given: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEY_CODES.get(key, ord(key[0].upper()))}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def front(self) -> None:
        """Make it the tab that is seen: others do not draw."""
        self.call("Page.bringToFront")

    def size(self, width: int, height: int, phone: bool = False) -> None:
        """The window's size in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def screenshot(self, path: Path) -> Path:
        """A PNG of the window."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(_exception(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if address != self._own and not address.startswith(("data:", "blob:")):
                self.requests.append(address)


class Browser:
    """A running Chromium."""

    def __init__(self, executable: str) -> None:
        from websockets.sync.client import connect

        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [executable, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._open = ExitStack()
        self._socket = self._open.enter_context(connect(self._address(), max_size=None, open_timeout=PATIENCE_S))
        self._count = 0
        self.listeners: dict[str, Any] = {}

    def _address(self) -> str:
        """Chromium writes where it listens into its profile."""
        file, deadline = Path(self._folder.name) / "DevToolsActivePort", time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            lines = file.read_text().split() if file.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.05)
        self._process.kill()
        raise AssertionError(f"{self._process.args} does not start")

    def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """A command and its answer; events that arrive before it go to their page."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._socket.send(json.dumps(message))
        while True:
            heard = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if heard.get("id") == message["id"]:
                if "error" in heard:
                    raise AssertionError(f"{method}: {heard['error']['message']}")
                return heard["result"]
            if "method" in heard and heard.get("sessionId") in self.listeners:
                self.listeners[heard["sessionId"]](heard["method"], heard["params"])

    @contextmanager
    def page(
        self, place: Path | str, width: int = 1200, height: int = 800, dark: bool = False, phone: bool = False
    ) -> Iterator[Page]:
        """A tab with a file or an address, loaded."""
        address = place.resolve().as_uri() if isinstance(place, Path) else place
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        page = Page(self, target, address)
        try:
            page.size(width, height, phone)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            page.call("Emulation.setEmulatedMedia", features=[scheme])
            page.call("Page.navigate", url=address)
            page.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
            yield page
        finally:
            self.call("Target.closeTarget", {"targetId": target})

    def close(self) -> None:
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._folder.cleanup()


def _exception(details: dict[str, Any]) -> str:
    """The first line of what went wrong, and its stack."""
    return details.get("exception", {}).get("description") or details.get("text", "exception")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium here; apt-get install chromium, or set CHROMIUM to its path")
    running = Browser(executable)
    try:
        yield running
    finally:
        running.close()
