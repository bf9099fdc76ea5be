"""`shoal schema`: the experiment file's JSON Schema, for editors."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of the experiment file.

    \b
    shoal schema > experiment.schema.json
    """
    import json

    from shoal.spec.schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
