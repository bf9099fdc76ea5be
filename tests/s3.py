"""S3 on loopback: moto's server, which speaks the protocol; and what tests need beside it.

`OpenS3` runs in the test: it takes unsigned requests for buckets whose names begin with `public`, and can hold or
damage what it is asked for. `signed_s3` is a process of its own that checks every signature.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import boto3
import httpx
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.running import until

REGION = "us-east-1"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@dataclass(frozen=True)
class Asked:
    """One request for an object."""

    key: str
    range: str


class Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


class OpenS3:
    """Buckets for anybody, some of them for those who sign only."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.open = threading.Event()  # objects are not given while this is not set
        self.open.set()
        self.change: Callable[[Asked, bytes], bytes] = lambda asked, body: body
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self._client = client(self.url, "anybody", "anything")

    def bucket(self, name: str, objects: Mapping[str, bytes] = MappingProxyType({})) -> str:
        """A new bucket; its URI."""
        self._client.create_bucket(Bucket=name, ACL=_acl(name))
        for key, body in objects.items():
            self.put(name, key, body)
        return f"s3://{name}"

    def put(self, bucket: str, key: str, body: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=key, Body=body, ACL=_acl(bucket))

    def remove(self, bucket: str, key: str) -> None:
        self._client.delete_object(Bucket=bucket, Key=key)

    def put_in_parts(self, bucket: str, key: str, parts: Iterable[bytes]) -> None:
        """The way large files go: the etag is then no sum of the content."""
        upload = self._client.create_multipart_upload(Bucket=bucket, Key=key, ACL=_acl(bucket))["UploadId"]
        done = []
        for number, part in enumerate(parts, 1):
            answer = self._client.upload_part(Bucket=bucket, Key=key, PartNumber=number, UploadId=upload, Body=part)
            done.append({"ETag": answer["ETag"], "PartNumber": number})
        self._client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": done})

    def close(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        # Clients of Google's buckets ask the same, and write more letters as %XX.
        environ["RAW_URI"] = environ["REQUEST_URI"] = quote(path.encode("latin-1")) + query
        if not path.startswith("/public") and "HTTP_AUTHORIZATION" not in environ:
            start("403 Forbidden", [("content-type", "application/xml")])
            return [DENIED]
        if environ["REQUEST_METHOD"] != "GET" or path.count("/") < 2:
            return self._app(environ, start)
        asked = Asked(path.split("/", 2)[2], environ.get("HTTP_RANGE", ""))
        self.asked.append(asked)
        self.open.wait()
        body = b"".join(self._app(environ, start))
        return [self.change(asked, body)]


@contextmanager
def open_s3() -> Iterator[OpenS3]:
    server = OpenS3()
    try:
        yield server
    finally:
        server.close()


@dataclass(frozen=True)
class Signed:
    url: str
    key: str
    secret: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
        }


@contextmanager
def signed_s3(objects: dict[str, bytes]) -> Iterator[Signed]:
    """A server that checks signatures, with one user, and a bucket `private` with these objects."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(url), "an S3 server")
        iam = client(url, "root", "root", "iam")
        iam.create_user(UserName="ada")
        key = iam.create_access_key(UserName="ada")["AccessKey"]
        everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
        iam.put_user_policy(UserName="ada", PolicyName="all", PolicyDocument=policy)
        s3 = client(url, key["AccessKeyId"], key["SecretAccessKey"])
        s3.create_bucket(Bucket="private")
        for name, body in objects.items():
            s3.put_object(Bucket="private", Key=name, Body=body)
        httpx.post(f"{url}/moto-api/reset-auth", content=b"0", trust_env=False).raise_for_status()
        yield Signed(url, key["AccessKeyId"], key["SecretAccessKey"])
    finally:
        process.kill()
        process.wait()


def client(url: str, key: str, secret: str, service: str = "s3") -> Any:
    return boto3.client(
        service, endpoint_url=url, region_name=REGION, aws_access_key_id=key, aws_secret_access_key=secret
    )


def without_credentials() -> dict[str, str]:
    """The variables here without any that say how to read buckets."""
    return {name: value for name, value in os.environ.items() if not re.match("AWS_|GOOGLE_", name)}


def _acl(bucket: str) -> str:
    return "public-read" if bucket.startswith("public") else "private"


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/moto-api/", trust_env=False).status_code < 500
    except httpx.HTTPError:
        return False
