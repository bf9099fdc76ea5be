"""`shoal show`: one experiment and its replicas."""

from __future__ import annotations

import json
from typing import Any

import click

MOST_METRICS = 12  # in one line


@click.command("show")
@click.argument("experiment")
@click.option("--provenance", is_flag=True, help="Where it comes from instead: command, commit, packages, host, data.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(experiment: str, provenance: bool, as_json: bool) -> None:
    """Show one experiment and its replicas.

    EXPERIMENT is an id, a number or a name; of several with one name the newest.
    """
    from shoal.cli.table import table
    from shoal.cli.wording import clock, duration, failure, how_it_ended, losses, progress
    from shoal.client import Client

    if provenance:
        _provenance(Client().provenance(experiment), as_json=as_json)
        return
    found = Client().show(experiment)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['id']} #{found['number']} {found['name'] or ''}".rstrip())
    print(f"{found['state']}{': ' + found['reason'] if found['reason'] else ''}")
    facts = [f"framework {found['framework']}", f"cluster {found['cluster']}", f"created {clock(found['created'])}"]
    facts.append(f"ran {duration(found)}")
    if found["attempt"]:
        facts.append(f"attempt {found['attempt']}")
    if progress(found):
        facts.append(progress(found))
    print(", ".join(facts))
    if found["params"]:
        print("params " + json.dumps(found["params"]))
    if found["metrics"]:
        print("metrics " + _metrics(found))
    words = {name: value for name, value in found["summary"].items() if name not in found["metrics"]}
    if words:
        print("summary " + json.dumps(words))
    for line in losses(found["losses"]):
        print(line)
    rows = [
        (e["replica"], str(e["rank"]), e["state"], how_it_ended(e), str(e["try"] or ""), e["node"], e["reason"])
        for e in found["replicas"]
    ]
    print("\n" + table(("replica", "rank", "state", "exit", "try", "node", "reason"), rows))
    if found["first_failure"]:
        print("\n" + failure(found["first_failure"]))


def _metrics(found: dict[str, Any]) -> str:
    """`loss 0.21, acc 0.93`: what stands for each metric in a list."""
    from shoal.cli.fields import value
    from shoal.cli.table import plain

    names = list(found["metrics"])
    more = f" and {len(names) - MOST_METRICS} more" if len(names) > MOST_METRICS else ""
    return plain(", ".join(f"{name} {value(found, f'metrics.{name}')}" for name in names[:MOST_METRICS])) + more


def _provenance(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
        return
    git, host, code = found.get("git"), found.get("host") or {}, found.get("code")
    for key in ("command", "directory", "caller", "user", "shoal"):
        if found.get(key):
            print(f"{key:10} {found[key]}")
    if code:
        print(f"{'code':10} {code['written']} {code['ref']} {code['commit']}")
    if git:
        state = ", changed" if git.get("dirty") else ""
        print(f"{'git':10} {git.get('commit') or git.get('error') or 'no commit yet'} {git.get('branch') or ''}{state}")
        if git.get("untracked"):
            print(f"{'':10} not in git: {', '.join(git['untracked'])}")
    if host:
        size = [f"{host['cpu']:g} cpu", f"{host['memory']} MiB"] if "cpu" in host else []
        facts = ", ".join(filter(None, [host.get("os"), *size, *(host.get("gpus") or ())]))
        print(f"{'host':10} {host['name']}{': ' + facts if facts else ''}")
    for data in found.get("datasets") or ():
        name = f"{data['name']}@v{data['version']}" if data["name"] else data["uri"]
        print(f"{'data':10} {data['at']}: {name} {data['digest'][:12]}")
    if found.get("python"):
        print(f"{'python':10} {found['python']} {found.get('executable') or ''}".rstrip())
        packages = sorted((found.get("packages") or {}).items())
        print(f"{'packages':10} {', '.join(f'{name} {version}' for name, version in packages)}")
    if git and git.get("diff"):
        cut = f"\n… cut: the diff has {git['diff_size']:,} bytes" if git.get("diff_cut") else ""
        print(f"\n{git['diff']}{cut}")
