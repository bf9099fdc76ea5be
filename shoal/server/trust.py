"""Who may speak to the server: every request needs a token, also on loopback, because the server runs commands.

Host and Origin are checked first: a page of another site that a browser on this machine shows can neither name this
server under a name of its own (DNS rebinding) nor use the console's cookie.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import cookie_parser
from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

OPEN_PATHS = ("/sign-in",)  # needs a one-time code instead
CODE_LIFETIME = 60.0


class Keys:
    """The token of this home, and the codes that were given out for signing in."""

    def __init__(
        self, token: str, cookie: str, hosts: frozenset[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.token = token
        self.cookie = cookie  # named after the home: cookies ignore ports
        self.hosts = hosts
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

    def allows(self, headers: dict[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if not given:
            # Lenient, as browsers are: cookies of other programs on this machine come along, whatever they hold.
            given = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self.token.encode())


class Guard:
    """ASGI middleware: nothing reaches the application that may not."""

    def __init__(self, app: Any, keys: Keys, touched: Callable[[], None]) -> None:
        self.app = app
        self.keys = keys
        self.touched = touched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self.refusal(scope["path"], headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self.touched()
        await self.app(scope, receive, send)

    def refusal(self, path: str, headers: dict[str, str]) -> JSONResponse | None:
        host = headers.get("host", "").lower()
        if host not in self.keys.hosts:
            return refused(421, f"this server is not called {host or 'nothing'}", "use the address shoal prints")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return refused(403, f"requests from pages of {origin} are refused", "open the console with shoal open")
        if path not in OPEN_PATHS and not self.keys.allows(headers):
            return refused(401, "a token is needed", "shoal open signs a browser in; the token is in server.json")
        return None


def refused(status: int, what: str, hint: str) -> JSONResponse:
    return JSONResponse({"what": what, "where": None, "hint": hint, "problems": []}, status)
