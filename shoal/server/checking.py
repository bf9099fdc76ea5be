"""Files before they run: what is wrong with them, what they mean, and some to begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI

import shoal
from shoal import home
from shoal.engine.data import Resolver
from shoal.engine.submission import Submission, prepare
from shoal.errors import FileProblems, ShoalError
from shoal.plan import plan
from shoal.server import types
from shoal.server.context import Server
from shoal.server.experiments import check_directory, rendered
from shoal.spec import Source, interpret
from shoal.spec.schema import json_schema

EXAMPLES = ("examples", "../examples")  # beside the package's files: of a wheel, of a checkout


def add_routes(app: FastAPI, server: Server) -> None:
    @app.post("/api/check", response_model=types.Checked, tags=["files"])
    def check(new: types.CheckRequest) -> Any:
        """What files mean, or everything that is wrong with them, as `shoal check --json` tells it."""
        sources = [Source(file.name, file.text) for file in new.files]
        try:
            document = interpret(sources, new.params)
        except FileProblems as error:
            problems, warnings = ([p.json() for p in found] for found in (error.problems, error.warnings))
            return {"ok": False, "errors": problems, "warnings": warnings}
        told = {"ok": True, "warnings": [p.json() for p in document.warnings], **plan(document.spec).json()}
        return {**told, **looked_around(new, sources)} if new.whole else told

    def looked_around(new: types.CheckRequest, sources: list[Source]) -> dict[str, Any]:
        """What is known of a file that is right in itself, once code, data, secrets and the cluster are looked at."""
        submission = Submission(sources, new.params, new.directory, new.oversubscribe, cluster=new.cluster)
        try:
            check_directory(new.directory)
            resolver = Resolver(server.home, server.database, {}, reach=False)
            prepared = prepare(submission, server.engine.site, home.secrets(server.home), resolver)
            request = rendered(server, new.cluster, prepared)
        except ShoalError as error:
            return {"ok": False, "errors": [p.json() for p in error.problems]}
        return {"warnings": [p.json() for p in prepared.warnings], "request": request}

    @app.get("/api/schema", response_model=dict[str, Any], tags=["files"])
    def schema() -> Any:
        """The JSON Schema of an experiment file, as `shoal schema` prints it: for editors."""
        return json_schema()

    @app.get("/api/templates", response_model=list[types.Template], tags=["files"])
    def templates() -> Any:
        """Files to begin with: the examples, each with the directory that its scripts are in."""
        return list(_examples())


def _examples() -> Iterator[dict[str, Any]]:
    package = Path(shoal.__file__).parent
    root = next(((package / place).resolve() for place in EXAMPLES if (package / place).is_dir()), None)
    if root is None:
        return
    for file in sorted(root.rglob("*.yml")):
        place = file.parent.relative_to(root)
        name = str(place if file.stem == "experiment" else place / file.stem)
        text = file.read_text()
        first = text.partition("\n")[0]
        title = first.lstrip("# ").rstrip() if first.startswith("#") else name
        yield {"name": name, "title": title, "text": text, "directory": str(file.parent)}
