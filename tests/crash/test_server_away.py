"""The server is killed while a launcher far away sends to it over HTTPS, and comes back: nothing is lost or doubled.

SHOAL_AWAY=180 lets it be away for minutes; by default it is for a few of the launcher's attempts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from shoal.client import Client
from shoal.home import read_server
from shoal.server.trust import write_token
from tests.clusters.daemons import free_ports
from tests.launched import start
from tests.running import SHOAL, finished, until

AWAY = float(os.environ.get("SHOAL_AWAY", "4"))
HERE = """
framework: none
run: {cmd: 'until [ -e %s ]; do sleep 0.2; done'}
environment: {replicas: {n_workers: 1, master: false}}
"""
FAR = """
import itertools, os, sys, time, shoal
for step in itertools.count():
    shoal.log(loss=step / 2, step=step)
    time.sleep(0.002)
    if os.path.exists(sys.argv[1]):
        break
print(step + 1, flush=True)
"""


def serve(home: Path, port: int, certificate: Path) -> subprocess.Popen[bytes]:
    command = [SHOAL, "serve", "--port", str(port), "--tls-cert", str(certificate), "--tls-key", str(certificate)]
    before = read_server(home)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: (found := read_server(home)) and found != before and found["port"] == port, "the server")
    return process


def self_signed(place: Path) -> Path:
    """A key and a certificate for 127.0.0.1, in one file."""
    both = place / "server.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(place / "key"), "-out", str(place / "certificate")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes((place / "certificate").read_bytes() + (place / "key").read_bytes())
    return both


def test_a_server_that_is_away_over_https_gets_everything_once(home: Path, tmp_path: Path) -> None:
    certificate, (port,) = self_signed(tmp_path), free_ports(1)
    server = serve(home, port, certificate)
    script, enough, over = tmp_path / "far.py", tmp_path / "enough", tmp_path / "over"
    script.write_text(FAR)
    created = Client().create([("e.yml", HERE % over)], [], str(tmp_path), dict(os.environ), oversubscribe=True)[
        "experiment"
    ]
    sink = {
        "SHOAL_SINK": f"https://127.0.0.1:{port}/",
        "SHOAL_SINK_CA": str(certificate),
        "SHOAL_SINK_TOKEN": write_token(str((read_server(home) or {})["token"]), created["uid"]),
        "SHOAL_REPLICA_UID": f"{created['uid']}-far-worker-0",
        "SHOAL_TRY": "7",
    }
    launcher = start(tmp_path / "far", f"{sys.executable} {script} {enough}", **sink)
    until(lambda: counted(created["id"]) > 0, "the first points")
    server.send_signal(signal.SIGKILL)
    server.wait()
    time.sleep(AWAY)
    server = serve(home, port, certificate)
    try:
        there = counted(created["id"])
        until(lambda: counted(created["id"]) > there, "what came while it was away", patience=60 + AWAY)
        enough.touch()
        launcher.communicate(timeout=120)
        assert launcher.returncode == 0
        over.touch()
        assert finished(created["id"])["state"] == "succeeded"
        logged = int((tmp_path / "far" / "attempt-0" / "worker-0" / "try-0" / "log" / "000000").read_text())
        found = Client().metrics(created["id"], "loss")
        points = [(int(step), value) for curve in found for step, value in zip(curve.steps, curve.values, strict=True)]
        assert points == [(step, step / 2) for step in range(logged)]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def counted(word: str) -> int:
    return sum(one["count"] for one in Client().series(word, name="loss"))
