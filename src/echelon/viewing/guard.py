"""Access to the live view: only a browser that was given its link, and no page from another origin.

MuJoCo's server answers every request. Any other web page, open in the same browser, could reach it on localhost, read
the simulation, drive it and send it files. So every request passes here first:

- Host must be localhost: another name that leads here is a page's own (DNS rebinding).
- Origin, where a browser sends one, must be the address that is asked, and Sec-Fetch-Site must not be another site's.
- A token from the printed link must be in the address or, from then on, in a cookie, as Jupyter does it.
- No files are accepted (`/drop`), messages are small, and no other origin is allowed to read an answer.

The server draws its windows in another part of the same process, which it reaches over a second port on loopback. That
one hangs up on every other process.
"""

import hmac
import os
import secrets
import socket
import threading
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

LOCAL = ("localhost", "127.0.0.1", "::1")
MAX_MESSAGE_BYTES = 1 << 20
"""Largest message: browsers send mouse, keys and acknowledgements."""


class Guard:
    """Admits requests by their headers and a token of its own."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.listening = threading.Event()
        """Whether requests are answered; refused until then."""

    def refusal(self, path: str, headers: Headers) -> str | None:
        """Why a request is refused; None if it may pass."""
        hosts = headers.get_all("Host")
        if len(hosts) != 1 or urlsplit(f"//{hosts[0]}").hostname not in LOCAL:
            return "this server answers only on localhost"
        if any(origin != f"http://{hosts[0]}" for origin in headers.get_all("Origin")):
            return "this request comes from a page of another origin"
        navigates = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not navigates:
            return "this request comes from a page of another site"
        if not self._has_token(path, hosts[0], headers):
            return "the link that echelon play printed has a token, which this request lacks"
        return "files are not accepted" if urlsplit(path).path == "/drop" else None

    async def serve(self, handler: Any, *, process_request: Any, process_response: Any, **options: Any) -> Any:
        """What MuJoCo's server calls instead of `websockets.serve`."""

        def answer(connection: Any, request: Request) -> Response | None:
            refusal = self.refusal(request.path, request.headers)
            if refusal is None:
                return process_request(connection, request)
            text = f"{refusal}\n".encode()
            lines = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(text))}
            return Response(403, "Forbidden", Headers(lines), text)

        def seal(connection: Any, request: Request, response: Response) -> None:
            """Let this origin alone read an answer, and remember that its browser has the token."""
            process_response(connection, request, response)
            headers = response.headers
            for name in ("Access-Control-Allow-Origin", "Cross-Origin-Resource-Policy"):
                if name in headers:
                    del headers[name]
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Content-Security-Policy"] = "frame-ancestors 'none'"
            headers["Referrer-Policy"] = "no-referrer"  # the token is in the address
            if self.refusal(request.path, request.headers) is None:  # whoever was refused learns no token
                cookie = f"{_cookie(request.headers['Host'])}={self.token}"
                headers["Set-Cookie"] = f"{cookie}; Path=/; HttpOnly; SameSite=Strict"

        options["max_size"] = MAX_MESSAGE_BYTES
        server = await serve(handler, process_request=answer, process_response=seal, **options)
        self.listening.set()
        return server

    def _has_token(self, path: str, host: str, headers: Headers) -> bool:
        given = parse_qs(urlsplit(path).query).get("token", [])
        for line in headers.get_all("Cookie"):
            try:
                given += [morsel.value for name, morsel in SimpleCookie(line).items() if name == _cookie(host)]
            except CookieError:
                continue
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given)


def _cookie(host: str) -> str:
    """Cookies do not tell ports apart, and another viewer may run on one."""
    return f"echelon-{urlsplit(f'//{host}').port or 80}"


class InnerSocket(socket.socket):
    """Listens on a free port of loopback, to connections from this process alone. Systems without /proc, such as macOS,
    cannot tell whose a connection is."""

    @staticmethod
    def bound(port: int = 0) -> "InnerSocket":
        """What MuJoCo's server calls instead of its own."""
        found = InnerSocket()
        found.bind(("127.0.0.1", port))
        found.listen()
        return found

    def accept(self) -> tuple[socket.socket, Any]:
        connection, peer = super().accept()
        if not _is_ours(peer[1]):
            connection.close()
            raise ConnectionAbortedError  # the caller waits for the next one
        return connection, peer


def _is_ours(port: int) -> bool:
    """Whether this process holds the end of a connection that is at a port of 127.0.0.1."""
    table = Path("/proc/net/tcp")
    if not table.exists():
        return True
    ours = set[str]()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them is gone
            ours.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    rows = (line.split() for line in table.read_text().splitlines()[1:])
    return any(row[1] == f"0100007F:{port:04X}" and f"socket:[{row[9]}]" in ours for row in rows)
