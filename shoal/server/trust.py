"""Who may speak to the server: every request needs a token, also on loopback, because the server runs commands.

Host and Origin are checked first: a page of another site that a browser on this machine shows can neither name this
server under a name of its own (DNS rebinding) nor use the console's cookie.

A replica far away has a token of its experiment, which can do one thing: add to that experiment's files.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

OPEN_PATHS = ("/sign-in",)  # needs a one-time code instead
CODE_LIFETIME = 60.0
INGEST = "/api/ingest/"  # followed by the uid of an experiment


class Keys:
    """The token of this home, and the codes that were given out for signing in."""

    def __init__(
        self,
        token: str,
        cookie: str,
        hosts: frozenset[str],
        clock: Callable[[], float] = time.monotonic,
        *,
        any_address: bool = False,
    ) -> None:
        """`any_address`: the server listens on all of them, and the one that a request came to is a name of it too."""
        self.token = token
        self.cookie = cookie  # named after the home: cookies ignore ports
        self.hosts = hosts
        self.any_address = any_address
        self.clock = clock
        self._codes: dict[str, float] = {}

    def new_code(self) -> str:
        now = self.clock()
        self._codes = {code: until for code, until in self._codes.items() if until > now}
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + CODE_LIFETIME
        return code

    def take_code(self, code: str) -> bool:
        """Whether the code is good; it is good once."""
        return self._codes.pop(code, float("-inf")) > self.clock()

    def named(self, host: str, address: tuple[str, int | None] | None) -> bool:
        """Whether a request calls this server by a name of it. A number cannot be made to mean another machine."""
        if host in self.hosts:
            return True
        if not self.any_address or not address:
            return False
        number = address[0].removeprefix("::ffff:")
        number = f"[{number}]" if ":" in number else number
        return host == f"{number}:{address[1]}" or (host == number and address[1] in (80, 443))

    def allows(self, headers: dict[str, str], path: str) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if given and path.startswith(INGEST):
            uid = path[len(INGEST) :].partition("/")[0]
            if hmac.compare_digest(given.encode(), write_token(self.token, uid).encode()):
                return True
        if not given:
            # Lenient, as browsers are: cookies of other programs on this machine come along, whatever they hold.
            given = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self.token.encode())


def write_token(token: str, uid: str) -> str:
    """What may write to one experiment and do nothing else. It is not kept anywhere: the home's token makes it anew."""
    return hmac.new(token.encode(), f"write:{uid}".encode(), "sha256").hexdigest()


class Guard:
    """ASGI middleware: nothing reaches the application that may not."""

    def __init__(
        self,
        app: Any,
        keys: Keys,
        touched: Callable[[], None],
        sign_in_page: Callable[[dict[str, str]], Response] | None = None,
    ) -> None:
        self.app = app
        self.keys = keys
        self.touched = touched
        self.sign_in_page = sign_in_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal: Response | None = self.refusal(scope["path"], headers, scope.get("server"))
        if refusal is not None and refusal.status_code == 401 and self.sign_in_page and _is_a_page(scope, headers):
            refusal = self.sign_in_page(headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self.touched()
        await self.app(scope, receive, send)

    def refusal(
        self, path: str, headers: dict[str, str], address: tuple[str, int | None] | None
    ) -> JSONResponse | None:
        host = headers.get("host", "").lower()
        if not self.keys.named(host, address):
            return refused(421, f"this server is not called {host or 'nothing'}", "use the address shoal prints")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return refused(403, f"requests from pages of {origin} are refused", "open the console with shoal open")
        if path not in OPEN_PATHS and not self.keys.allows(headers, path):
            return refused(401, "a token is needed", "shoal open signs a browser in; the token is in server.json")
        return None


def _is_a_page(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether a person looks at the answer, and not a program."""
    of_the_api = scope["path"] == "/api" or scope["path"].startswith("/api/")
    return scope.get("method") == "GET" and not of_the_api and "text/html" in headers.get("accept", "")


def refused(status: int, what: str, hint: str) -> JSONResponse:
    return JSONResponse({"what": what, "where": None, "hint": hint, "problems": []}, status)
