"""`shoal cluster ls`, `shoal cluster check` and `shoal cluster role`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

ROLE_IN = ("deploy", "../deploy")  # beside the package's files: of a wheel, of a checkout


@click.group("cluster")
def command() -> None:
    """List the clusters of this home, and check what works there.

    Clusters are named in config.toml of the home, under [clusters.NAME]; `local` is this machine.
    """


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(as_json: bool) -> None:
    """List the clusters of this home. Nothing is asked of them."""
    from shoal.cli.table import table
    from shoal.client import Client

    found = Client().clusters()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [
        (entry["name"], entry["kind"], _where(entry), entry["sink"] or "-", entry["image"] or "-",
         str(entry["unfinished"]))
        for entry in found
    ]  # fmt: skip
    print(table(("name", "kind", "where", "sink", "image", "experiments"), rows))


@command.command("check")
@click.argument("name")
@click.option("--pod/--no-pod", default=True, help="Whether a small pod is started there that looks around.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(name: str, pod: bool, as_json: bool) -> None:
    """Look at a cluster, and say what to do about what does not work.

    Version, rights, Kubeflow's kinds, capacity, the namespace and what is named in the settings; and from inside a pod:
    Python, DNS, the claim, the server. Exit code 0 when nothing is a problem, 1 when something is, 3 when the cluster
    does not answer.

    \b
    shoal cluster check lab
    shoal cluster check lab --no-pod --json
    """
    from shoal.cli.table import table
    from shoal.client import Client

    found = Client().check_cluster(name, pod=pod)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        rows = [(entry["state"], entry["name"], entry["text"]) for entry in found["findings"]]
        lines = table(("", "what", "seen"), rows).splitlines()[1:]
        for line, entry in zip(lines, found["findings"], strict=True):
            print(line)
            if entry["hint"] and entry["state"] != "ok":
                print(f"         {entry['hint']}")
    problems = [entry for entry in found["findings"] if entry["state"] == "problem"]
    if problems:
        sys.stdout.flush()
        sys.exit(3 if any(entry["unreachable"] for entry in problems) else 1)


@command.command("role")
def role() -> None:
    """Print the rights that Shoal needs in a namespace of Kubernetes, as a manifest.

    \b
    shoal cluster role | kubectl apply -n team-a -f -
    """
    from pathlib import Path

    package = Path(__file__).parents[1]
    places = (package / place / "kubernetes.yaml" for place in ROLE_IN)
    print(next(path for path in places if path.exists()).read_text(), end="")


def _where(entry: dict[str, Any]) -> str:
    if entry["kind"] == "local":
        gpus = len(entry["gpus"])
        return f"{entry['cpu']:g} cores, {entry['memory'] / 1024:.0f} GiB, {gpus} GPU{'' if gpus == 1 else 's'}"
    return f"{entry['context'] or '(current context)'}/{entry['namespace']}"
