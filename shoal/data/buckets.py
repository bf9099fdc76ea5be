"""Buckets of S3 and of Google Cloud Storage: opening them with the credentials of whoever asks, and listing them.

obstore is loaded on use. Credentials come from variables (those of the caller, and of the secrets that the file names),
from the files of the AWS command line, or there are none (`anonymous`).
"""

from __future__ import annotations

import configparser
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shoal.data.manifests import Entry, Manifest, safe
from shoal.errors import ShoalError, Unavailable, UsageError

SCHEMES = ("s3", "gs")
VARIABLES = ("AWS_", "GOOGLE_", "STORAGE_EMULATOR_HOST")
METADATA = "169.254.169.254"  # who gives credentials to machines in a cloud
ROLES = (  # by these variables of its own the server can find credentials
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
KINDS = "s3://bucket/prefix, gs://bucket/prefix or a path"


@dataclass(frozen=True)
class Address:
    """Where a bucket is and how to read it; `endpoint` and `region` are empty for the usual ones."""

    uri: str
    anonymous: bool = False
    endpoint: str = ""
    region: str = ""

    @property
    def origin(self) -> str:
        """What an etag belongs to."""
        return f"{self.uri.rstrip('/')} {self.endpoint}".rstrip()


class Bucket:
    """An opened bucket, and the key below which the data lies."""

    def __init__(self, address: Address, environment: Mapping[str, str]) -> None:
        self.address = address
        scheme, _, rest = address.uri.partition("://")
        self.name, _, key = rest.partition("/")
        self.key = key.strip("/")
        if not self.name or (self.key and not safe(self.key)):
            raise UsageError(f"{address.uri} names no bucket", hint=f"write {scheme}://bucket/prefix")
        opener = _open_s3 if scheme == "s3" else _open_gcs
        try:
            self.store = opener(self.name, address, environment)
        except Exception as error:  # noqa: BLE001  obstore's errors share no tree with a name
            raise self.trouble(error) from None

    def listing(self) -> Manifest:
        """Every object below the key, or the one object that the key names."""
        import obstore

        entries: list[Entry] = []
        try:
            for batch in obstore.list(self.store, self.key or None):
                entries += [self._entry(meta) for meta in batch]
            if not entries and self.key:
                meta = obstore.head(self.store, self.key)
                name = self.key.rpartition("/")[2]
                return Manifest(({"path": name, "size": meta["size"], "etag": meta["e_tag"] or ""},), single=True)
        except Exception as error:  # noqa: BLE001  obstore's errors share no tree with a name
            raise self.trouble(error) from None
        entries = _without_folders(entries, self.address.uri)
        if not entries:
            raise UsageError(f"{self.address.uri} holds no objects", hint="is the prefix right?")
        return Manifest(tuple(sorted(entries, key=lambda entry: str(entry["path"]))))

    def _entry(self, meta: Any) -> Entry:
        path = meta["path"][len(self.key) :].lstrip("/") if self.key else meta["path"]
        if path and not safe(path):
            raise UsageError(f"{self.address.uri}: {path!r} cannot be the name of a file", hint="rename the object")
        return {"path": path, "size": meta["size"], "etag": meta["e_tag"] or ""}

    def key_of(self, entry: Entry, *, single: bool) -> str:
        if single:
            return self.key
        return f"{self.key}/{entry['path']}" if self.key else str(entry["path"])

    def trouble(self, error: Exception) -> ShoalError:
        """What obstore says, as a person needs it."""
        if isinstance(error, ShoalError) and METADATA not in str(error):
            return error
        uri, said = self.address.uri, str(error)
        code, text = _xml(said, "Code"), _xml(said, "Message")
        if METADATA in said or "metadata.google" in said:
            return Unavailable(f"{uri}: there are no credentials for it", hint=self._credentials_hint())
        if code == "NoSuchBucket":
            return UsageError(f"{uri}: there is no bucket {self.name!r}", hint="is the name right, and the endpoint?")
        if isinstance(error, FileNotFoundError):
            return UsageError(f"{uri}: there is no such object, and none below it", hint="is the prefix right?")
        if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
            return Unavailable(f"{uri}: the bucket is in another region", hint="--region, or AWS_REGION, names it")
        if re.search(r"\b40[13] ", said) or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
            return Unavailable(f"{uri}: not allowed{': ' + text if text else ''}", hint=self._credentials_hint())
        first = said.partition("\n")[0].removeprefix("Generic S3 error: ").removeprefix("Generic GCS error: ")
        return Unavailable(f"{uri} cannot be read: {text or first[:300]}", hint="is the endpoint right and reachable?")

    def _credentials_hint(self) -> str:
        if self.address.anonymous:
            return "it is read anonymously; give credentials if it is not public"
        names = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        if self.address.uri.startswith("gs:"):
            names = "GOOGLE_APPLICATION_CREDENTIALS"
        return f"set {names}, or name a secret that has them in secret_refs; anonymous reads a public bucket"


def is_bucket(uri: str) -> bool:
    """Whether it is a URI of a bucket; False for a path. Raises UsageError for other schemes."""
    scheme, separator, _ = uri.partition("://")
    if not separator or scheme == "file":
        return False
    if scheme not in SCHEMES:
        raise UsageError(f"{uri}: {scheme}:// cannot be read", hint=KINDS)
    return True


def address_of(uri: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> Address:
    """The address with what the caller's variables say of it."""
    endpoint, region = options.get("endpoint") or "", options.get("region") or ""
    if uri.startswith("s3:"):
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        endpoint = endpoint or next((environment[name] for name in names if environment.get(name)), "")
        region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    else:
        endpoint = endpoint or environment.get("STORAGE_EMULATOR_HOST", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    return Address(uri, bool(options.get("anonymous")), endpoint.rstrip("/"), region)


def only_for_buckets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that say how to read buckets; nothing else of an environment need travel."""
    return {name: value for name, value in environment.items() if name.startswith(VARIABLES) or name == "HOME"}


def _client(endpoint: str, environment: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"connect_timeout": "10s", "timeout": "120s", "allow_http": endpoint.startswith("http:")}
    bundle = environment.get("AWS_CA_BUNDLE")
    if endpoint.startswith("https:") and bundle and os.path.isfile(bundle):
        with open(bundle, "rb") as file:
            options["root_certificate"] = file.read()
    return options


def _retries() -> dict[str, Any]:
    return {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}


def _open_s3(name: str, address: Address, environment: Mapping[str, str]) -> Any:
    from obstore.store import S3Store

    options: dict[str, Any] = {"region": address.region or _aws_file(environment, "config").get("region", "us-east-1")}
    if address.endpoint:
        options |= {"endpoint": address.endpoint, "virtual_hosted_style_request": False}
    if address.anonymous:
        options["skip_signature"] = True
    else:
        key = _aws_keys(environment)
        if key is not None:
            options["credential_provider"] = lambda: {**key, "expires_at": None}
        elif not any(name in os.environ for name in ROLES) and not _in_amazons_cloud():
            raise Unavailable(METADATA)
    client = _client(address.endpoint, environment)
    return S3Store(name, client_options=client, retry_config=_retries(), **options)  # type: ignore[arg-type]


def _aws_keys(environment: Mapping[str, str]) -> dict[str, str | None] | None:
    """From the variables, else from ~/.aws/credentials; None leaves it to obstore, which asks the machine's role."""
    identity, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    token = environment.get("AWS_SESSION_TOKEN") or None
    if not (identity and secret):
        kept = _aws_file(environment, "credentials")
        identity, secret = kept.get("aws_access_key_id"), kept.get("aws_secret_access_key")
        token = kept.get("aws_session_token") or None
    if not (identity and secret):
        return None
    return {"access_key_id": identity, "secret_access_key": secret, "token": token}


def _in_amazons_cloud() -> bool:
    """Whether anybody could tell a role of this machine. obstore would ask for minutes where nobody answers."""
    try:
        socket.create_connection((METADATA, 80), timeout=1.0).close()
    except OSError:
        return False
    return True


def _aws_file(environment: Mapping[str, str], kind: str) -> Mapping[str, str]:
    """The section of the profile in use, in a file of the AWS command line."""
    variable = "AWS_SHARED_CREDENTIALS_FILE" if kind == "credentials" else "AWS_CONFIG_FILE"
    file = environment.get(variable) or os.path.join(environment.get("HOME") or "/", ".aws", kind)
    profile = environment.get("AWS_PROFILE") or "default"
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    for section in (profile, f"profile {profile}"):
        if parser.has_section(section):
            return dict(parser.items(section))
    return {}


def _open_gcs(name: str, address: Address, environment: Mapping[str, str]) -> Any:
    from obstore.store import GCSStore

    options: dict[str, Any] = {}
    for variable, key in (
        ("GOOGLE_SERVICE_ACCOUNT", "service_account"),
        ("GOOGLE_SERVICE_ACCOUNT_PATH", "service_account"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "service_account_key"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "application_credentials"),
    ):
        if environment.get(variable) and not address.anonymous:
            options[key] = environment[variable]
    if address.endpoint:
        options["base_url"] = address.endpoint
    if address.anonymous:
        options["skip_signature"] = True
    client = _client(address.endpoint, environment)
    return GCSStore(name, client_options=client, retry_config=_retries(), **options)  # type: ignore[arg-type]


def _without_folders(entries: list[Entry], uri: str) -> list[Entry]:
    """Without the empty objects by which consoles draw folders. Other objects cannot be file and directory at once."""
    folders = {path[:at] for path in (str(entry["path"]) for entry in entries) for at in _slashes(path)}
    kept = []
    for entry in entries:
        if entry["path"] and entry["path"] not in folders:
            kept.append(entry)
        elif entry["size"]:
            raise UsageError(
                f"{uri}: {entry['path']} is an object and a folder of others, which no file system can hold",
                hint="name a prefix without it",
            )
    return kept


def _slashes(path: str) -> list[int]:
    return [number for number, letter in enumerate(path) if letter == "/"]


def _xml(text: str, tag: str) -> str:
    match = re.search(f"<{tag}>([^<]*)</{tag}>", text)
    return match.group(1) if match else ""
