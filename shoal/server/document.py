"""`python -m shoal.server.document`: the OpenAPI document, without a server. `make types` makes TypeScript of it."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from shoal.server.app import routes
from shoal.server.context import Server


def document() -> dict[str, Any]:
    """What GET /api/openapi.json gives."""
    nobody = cast(Server, None)  # routes ask for the server when they are called
    return routes(nobody).openapi()


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1, ensure_ascii=False)
    print()
