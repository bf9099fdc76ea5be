"""The Role of deploy/kubernetes.yaml: everything that is asked of the API server is in it, and nothing is in it that is
not asked. A proxy before the real API server writes down what passes."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shoal.backends.kubernetes.rights import KUBEFLOW, RIGHTS, Right
from tests.clusters.kubernetes.cluster import Cluster
from tests.clusters.kubernetes.conftest import Namespace
from tests.running import (
    attempt_directory,
    finished,
    kill,
    lines_of,
    running,
    server_pid,
    shoal,
    show,
    submit,
    until,
)

OPEN = {"/version", "/apis/kubeflow.org/v1", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}  # to everybody
MAY_BE_REFUSED = {Right("", "nodes", "list")}  # told by `cluster check`, and needed by nothing
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}


def right_of(method: str, url: str) -> Right | None:
    """What a request needs; None for what everybody may ask."""
    parts = urlsplit(url)
    if parts.path in OPEN:
        return None
    words = parts.path.strip("/").split("/")
    group, words = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    if words[0] == "namespaces" and len(words) > 2:
        words = words[2:]
    resource = "/".join([words[0], *words[2:]])
    named, watched = len(words) > 1, "watch" in parse_qs(parts.query)
    return Right(group, resource, VERBS.get(method, "get" if named else "watch" if watched else "list"))


@contextlib.contextmanager
def recorded(cluster: Cluster) -> Iterator[tuple[str, list[tuple[Right | None, int]]]]:
    """The address of a proxy, and what passed: rights and answers."""
    seen: list[tuple[Right | None, int]] = []
    context = ssl.create_default_context(cafile=str(cluster.place / "pki" / "ca.crt"))

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            there = http.client.HTTPSConnection("127.0.0.1", cluster.info["port"], context=context)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            there.request(self.command, self.path, body or None, headers)
            answer = there.getresponse()
            seen.append((right_of(self.command, self.path), answer.status))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(OSError, http.client.HTTPException):  # either side may hang up
                while piece := answer.read1(1 << 16):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
            there.close()

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = forward  # noqa: N815

        def log_message(self, *words: Any) -> None:
            return

    class Quiet(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *words: Any) -> None:
            return  # whoever hangs up is free to

    server = Quiet(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


WAITS = "framework: none\nrun: {cmd: 'echo here; sleep 1000'}\ngrace: {stop: 1s}\n"
NEVER = WAITS + "environment: {node_selector: {pool: none}}\n"
TOO_MUCH = WAITS + "environment: {resources: {gpu: {requests: 1, limits: 1}}}\n"
SECRET = "framework: none\nrun: {cmd: 'echo $KEY'}\nenvironment: {secret_refs: [mine]}\n"


def test_the_role_is_enough_and_nothing_in_it_is_too_much(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    base = f"/api/v1/namespaces/{namespace.name}"
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}
    namespace.cluster.ask("POST", f"{base}/resourcequotas", quota)
    with recorded(namespace.cluster) as (address, seen):
        content = json.loads(namespace.kubeconfig.read_text())
        content["clusters"][0]["cluster"] = {"server": address}
        namespace.kubeconfig.write_text(json.dumps(content))
        home.mkdir(mode=0o700)
        (home / "secrets.toml").write_text('[mine]\nKEY = "secret"\n')
        (home / "secrets.toml").chmod(0o600)
        checked = namespace.config("checked", outputs_claim="outputs")
        (home / "config.toml").write_text(namespace.config() + checked)
        assert shoal("cluster", "check", "lab").returncode == 0
        assert shoal("cluster", "check", "checked", "--no-pod").returncode == 1  # there is no such claim
        word = submit(tmp_path, SECRET, "--on", "lab")
        assert finished(word)["state"] == "succeeded"
        assert lines_of(word) == ["secret"]
        gracefully, at_once, pending, refused = (
            submit(tmp_path, text, "--on", "lab") for text in (WAITS, WAITS, NEVER, TOO_MUCH)
        )
        running(gracefully)
        running(at_once)
        until(lambda: "exceeded quota" in show(refused)["replicas"][0]["reason"], "the words of the quota")
        # As if the server had died after its call and before it could write down the answer.
        created = attempt_directory(home, pending) / "created.json"
        until(created.exists, "what is made of the one that waits")
        kill(server_pid(home))
        created.unlink()
        assert shoal("show", pending).returncode == 0
        until(created.exists, "the next server, which finds what that one made")
        assert shoal("stop", gracefully, pending, refused).returncode == 0
        assert shoal("stop", "--now", at_once).returncode == 0
        for each in (gracefully, at_once, pending, refused):
            assert finished(each)["state"] == "stopped"
        until(lambda: not namespace.items("pods") and not namespace.items("jobs"), "an empty namespace")
    asked = {right for right, _ in seen if right is not None}
    assert asked - set(RIGHTS) <= MAY_BE_REFUSED, "asked, and not in the Role"
    assert {right for right in RIGHTS if right.group != KUBEFLOW} - asked == set(), "in the Role, and not asked"
    assert {right for right, status in seen if status == 403} <= MAY_BE_REFUSED
