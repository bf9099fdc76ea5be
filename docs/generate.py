"""Writes the pages of docs/reference from the code, so that they cannot be wrong. `make docs` runs it.

A test compares the pages with what this file would write.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"

GALLERY = {
    "Names and choices": [
        "typo-in-framework",
        "unknown-key",
        "fragment-at-the-wrong-level",
        "replicas-without-framework",
        "nothing-to-run",
        "empty-keys",
        "wrong-types",
    ],
    "Replicas": [
        "servers-for-pytorch",
        "mxnet-without-scheduler",
        "master-settings-without-master",
        "duplicate-index",
        "missing-index",
        "unequal-trainers",
        "restart-one-of-pytorch",
    ],
    "Resources": [
        "resources",
        "requests-above-limits",
    ],
    "Variables, params and data": [
        "reserved-variables",
        "unknown-param",
        "template-that-calls",
        "template-left-open",
        "data-at-one-place",
    ],
    "Files that come from elsewhere": [
        "kind-group",
        "polyaxon-2",
        "not-supported",
        "two-spellings",
        "section-disagrees",
        "pasted-ellipsis",
    ],
    "YAML": [
        "tabs",
        "colon-in-a-value",
        "duplicate-keys",
        "second-document",
        "a-list",
        "empty",
        "alias-bomb",
        "anchors",
        "unknown-tag",
        "binary",
        "utf-16",
        "latin-1",
    ],
}


def experiment_file() -> str:
    """docs/reference/experiment-file.md, from the types."""
    from shoal.spec.schema import json_schema

    schema = json_schema()
    definitions = schema["$defs"]
    page = [
        "# The experiment file",
        "",
        "Made from the types in `shoal/spec/types.py` by `make docs`. `shoal schema` prints the same as JSON Schema.",
        "",
        "A key that is left out has its default. A key without a value, a key that is not listed here and a value of",
        "another type are errors.",
    ]
    page += ["", "## Top level", "", schema["description"], "", *_table(schema, definitions)]
    for name, definition in definitions.items():
        page += ["", f"## {name}", "", definition["description"], "", *_table(definition, definitions)]
    return "\n".join(page) + "\n"


def _table(definition: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    body = definition if "properties" in definition else definition["anyOf"][1]
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, entry in body["properties"].items():
        reference = entry.get("$ref", "")
        description = entry.get("description") or definitions[reference.rpartition("/")[2]]["description"]
        required = key in body.get("required", [])
        default = "required" if required else _default(entry)
        if "Default:" in description:
            description, _, said = description.partition("Default:")
            default = said.strip().rstrip(".")
        cells = (f"`{key}`", _kind(entry), default, description.strip().split("\n")[0])
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def _kind(entry: dict[str, Any]) -> str:
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "allOf" in entry:
        return _kind(entry["allOf"][0])
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    options = entry.get("anyOf") or entry.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_kind(option) for option in options))
    kind = entry.get("type")
    if kind == "array":
        return f"list of {_kind(entry['items'])}"
    if kind == "object":
        return "mapping"
    words = {"integer": "whole number", "boolean": "true or false", "string": "text"}
    if isinstance(kind, list):
        return "text"
    bounds = [
        f"≥ {entry['minimum']}" if "minimum" in entry else "",
        f"> {entry['exclusiveMinimum']}" if "exclusiveMinimum" in entry else "",
    ]
    return " ".join([words.get(str(kind), str(kind or "any")), *[bound for bound in bounds if bound]])


def _default(entry: dict[str, Any]) -> str:
    default = entry.get("default")
    if default in ({}, [], None):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, dict):
        return "see there"
    return f"`{default}`"


def variables() -> str:
    """docs/reference/environment-variables.md, from the framework files."""
    from shoal.frameworks import FRAMEWORKS, identity, polyaxon

    page = [
        "# Environment variables",
        "",
        "What every replica finds in its environment, by framework. `shoal check --env worker-0` prints the values of",
        "one replica of a file. These names cannot be set in `environment.env_vars`.",
    ]
    sections: dict[str, Any] = {
        "All frameworks": identity,
        **{name: module for name, module in FRAMEWORKS.items() if name != "none"},
        "Scripts that come from Polyaxon": polyaxon,
    }
    for title, module in sections.items():
        page += ["", f"## {title}", "", *_docstring(module)]
    return "\n".join(page) + "\n"


def _docstring(module: Any) -> list[str]:
    """A module's docstring as Markdown: what it indents is shown as it looks."""
    lines: list[str] = []
    inside = False
    for line in (module.__doc__ or "").strip().split("\n"):
        if line.startswith("    ") and not inside:
            lines.append("```text")
            inside = True
        elif inside and line and not line.startswith("    "):
            while lines[-1] == "":
                lines.pop()
            lines += ["```", ""]
            inside = False
        lines.append(line[4:] if inside else line)
    return [*lines, "```"] if inside else lines


def command_line() -> str:
    """docs/reference/command-line.md, from the verbs' own help."""
    from shoal.cli import app

    page = [
        "# Command line",
        "",
        "stdout is data, stderr the rest; `--json` where a verb prints data. Exit codes:",
        "",
        "| code | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | the experiment failed |",
        "| 2 | wrong use, or a bad file |",
        "| 3 | a server or cluster cannot be reached |",
        "| 130 | interrupted |",
    ]
    root = click.Context(app, info_name="shoal", max_content_width=100, terminal_width=100)
    page += ["", "## shoal", "", "```text", app.get_help(root), "```"]
    for name in app.list_commands(root):
        command = app.get_command(root, name)
        assert command is not None
        page += _help(command, root, name)
    return "\n".join(page) + "\n"


def _help(command: click.Command, parent: click.Context, name: str) -> list[str]:
    context = click.Context(command, parent=parent, info_name=name, max_content_width=100, terminal_width=100)
    lines = ["", f"## {context.command_path}", "", "```text", command.get_help(context), "```"]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            below = command.get_command(context, inner)
            assert below is not None
            lines += _help(below, context, inner)
    return lines


def errors() -> str:
    """docs/reference/errors.md: what the wrong files of the tests really get."""
    folder = ROOT / "tests" / "fixtures" / "wrong"
    named = [name for names in GALLERY.values() for name in names]
    assert sorted(named) == sorted(path.stem for path in folder.glob("*.yml")), "each wrong file once"
    page = [
        "# Error gallery",
        "",
        "Made by running `shoal check` on the files in `tests/fixtures/wrong`. Every error says what is wrong, where,",
        "which choices are valid and one way on; all errors of a file come at once.",
    ]
    for title, names in GALLERY.items():
        page += ["", f"## {title}"]
        for name in names:
            path = folder / f"{name}.yml"
            page += ["", f"### {name.replace('-', ' ')}", ""]
            data = path.read_bytes()
            if data and name not in ("binary", "utf-16", "latin-1"):
                page += ["```yaml", data.decode().rstrip("\n"), "```", ""]
            result = subprocess.run(
                [sys.executable, "-m", "shoal", "check", path.name],
                cwd=folder,
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            assert result.returncode == 2, result.stderr
            page += ["```text", result.stderr.rstrip("\n"), "```"]
    return "\n".join(page) + "\n"


PAGES_BY_NAME = {
    "experiment-file.md": experiment_file,
    "environment-variables.md": variables,
    "command-line.md": command_line,
    "errors.md": errors,
}

if __name__ == "__main__":
    for page_name, write in PAGES_BY_NAME.items():
        (PAGES / page_name).write_text(write())
        print(f"docs/reference/{page_name}")
