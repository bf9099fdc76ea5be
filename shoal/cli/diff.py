"""`shoal diff`: what differs between two experiments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

FACTS = ("command", "directory", "user", "shoal", "python")
GONE = "-"


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(a: str, b: str, as_json: bool) -> None:
    """Show what differs between two experiments, and nothing else.

    State, params, the file as it was resolved, command, commit and uncommitted changes (outside git: the files of the
    directory, by hash), packages, host, data sets, and the last values of metrics. Nothing differs: it says so.

    \b
    shoal diff e7k2m9 e3p8q1
    """
    from shoal.client import Client

    client = Client()
    left, right = client.show(a), client.show(b)
    found = differences(
        {**left, "provenance": client.provenance(left["uid"])}, {**right, "provenance": client.provenance(right["uid"])}
    )
    if as_json:
        print(json.dumps({"a": left["id"], "b": right["id"], "differs": found}, indent=2))
        return
    if not found:
        print(f"nothing differs between {left['id']} and {right['id']}")
        return
    print(f"{left['id']} and {right['id']} differ in {', '.join(found)}")
    for section, content in found.items():
        print(f"\n{section}:\n{content}" if isinstance(content, str) else f"\n{_pairs(section, content, left, right)}")


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """section -> {name: [left, right]}, or a unified diff; only what differs. A missing value is None."""
    ours, theirs = left["provenance"], right["provenance"]
    git, other_git = ours.get("git") or {}, theirs.get("git") or {}
    sections = {
        "state": _pair({"state": left["state"]}, {"state": right["state"]}),
        "params": _pair(left["params"], right["params"]),
        "file": _unified(left["resolved"], right["resolved"], left["id"], right["id"]),
        "facts": _pair({key: ours.get(key) for key in FACTS}, {key: theirs.get(key) for key in FACTS}),
        "code": _pair(ours.get("code") or {}, theirs.get("code") or {}),
        "git": _pair(_commit(git), _commit(other_git)),
        "files": _pair(_hashes(ours), _hashes(theirs)),
        "changes": _unified(git.get("diff") or "", other_git.get("diff") or "", left["id"], right["id"]),
        "packages": _pair(ours.get("packages") or {}, theirs.get("packages") or {}),
        "host": _pair(ours.get("host") or {}, theirs.get("host") or {}),
        "data": _pair(_data(ours), _data(theirs)),
        "metrics": _pair(_last(left), _last(right)),
    }
    return {name: content for name, content in sections.items() if content}


def _pair(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys([*left, *right])
    return {name: [left.get(name), right.get(name)] for name in names if left.get(name) != right.get(name)}


def _commit(git: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: git.get(key) for key in ("commit", "branch")}
    return {**shown, "not in git": ", ".join(git.get("untracked") or ()) or None}


def _hashes(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Of code that no commit tells of."""
    return dict((provenance.get("files") or {}).get("hashes") or {})


def _data(provenance: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for mount in provenance.get("datasets") or ():
        name = f"{mount['name']}@v{mount['version']}" if mount["name"] else mount["uri"]
        found[mount["at"]] = f"{name} {mount['digest'][:12]}"
    return found


def _last(experiment: Mapping[str, Any]) -> dict[str, Any]:
    return {name: metric.get("last") for name, metric in (experiment.get("metrics") or {}).items()}


def _unified(left: str, right: str, from_name: str, to_name: str) -> str:
    from difflib import unified_diff

    return "\n".join(unified_diff(left.splitlines(), right.splitlines(), from_name, to_name, lineterm="", n=1))


def _pairs(section: str, content: Mapping[str, list[Any]], left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    from shoal.cli.table import table

    rows = [(f"  {name}", _shown(ours), _shown(theirs)) for name, (ours, theirs) in content.items()]
    return table((f"{section}:", left["id"], right["id"]), rows)


def _shown(value: Any) -> str:
    if value is None:
        return GONE
    return value if isinstance(value, str) else json.dumps(value)
