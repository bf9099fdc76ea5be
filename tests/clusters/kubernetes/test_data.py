"""`data:` on a real cluster: every replica finds what it finds on a laptop, and fetches it from the server."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.clusters.kubernetes.conftest import Namespace
from tests.clusters.kubernetes.serving import https_sink, serving
from tests.running import finished, lines_of, shoal, submit
from tests.s3 import open_s3

FILE = """
framework: pytorch
backend: {backend}
run:
  cmd: cd $SHOAL_DATA && find -L . -type f | sort | xargs sha256sum
data:
  - {{dataset: letters@v1}}
  - {{dataset: far, at: deep/far}}
  - {{uri: here/one.csv}}
environment: {{replicas: {{n_workers: 1}}}}
"""


@pytest.mark.parametrize("backend", ["native", "kubeflow"])
def test_replicas_find_the_same_data_as_on_a_laptop(
    namespace: Namespace, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    home.mkdir()
    sink, options = https_sink(tmp_path)
    (home / "config.toml").write_text(namespace.config(**sink))
    code, here = tmp_path / "code", tmp_path / "code" / "here"
    here.mkdir(parents=True)
    (here / "one.csv").write_text("1,2\n")
    (code / ".shoalignore").write_text("here/\n")
    (here / "large.bin").write_bytes(random.Random(1).randbytes(5_000_000))
    with open_s3() as s3, serving(home, *options):
        s3.bucket("public-far", {"d/x": b"object", "d/sub/y": b"deep"})
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
        for made in (("upload", "letters", str(here)), ("add", "far", "s3://public-far/d", "--anonymous")):
            done = shoal("dataset", *made)
            assert done.returncode == 0, done.stderr
        words = [submit(code, FILE.format(backend=backend), "--on", cluster) for cluster in ("lab", "local")]
        for word in words:
            shown = finished(word)
            assert shown["state"] == "succeeded", shown["reason"]
        seen = [lines_of(word, name) for word in words for name in ("master-0", "worker-0")]
        assert len(seen[0]) == 5
        assert seen == [seen[0]] * 4


def test_without_a_server_to_fetch_it_from_data_is_refused(namespace: Namespace, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(namespace.config())
    (tmp_path / "one.csv").write_text("1,2\n")
    (tmp_path / "experiment.yml").write_text("run: {cmd: 'true'}\ndata: [{uri: one.csv}]\n")
    for verb in ("plan", "run"):
        done = shoal(verb, str(tmp_path / "experiment.yml"), "--on", "lab")
        assert done.returncode == 2
        assert "one.csv cannot be brought there: replicas have no server to fetch it from" in done.stderr
        assert 'set sink = "https://…" in [clusters.lab]' in done.stderr
