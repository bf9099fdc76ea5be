"""What the routes of files give: outputs, artifacts, models."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shoal.server.types import ApiModel, Text

ARTIFACT = (
    "id", "experiment", "name", "version", "kind", "attempt", "replica", "process", "step", "created", "size", "digest",
    "metadata", "conflict", "writers",
)  # fmt: skip
MODEL = (
    "name", "version", "aliases", "experiment", "attempt", "replica", "process", "step", "metrics", "created", "size",
    "digest",
)  # fmt: skip


class Output(ApiModel):
    """One file that a replica wrote."""

    path: str = Field(description="Relative to the outputs; `worker-2/…` is the replica's own directory.")
    replica: str | None = Field(description="Whose directory it lies in; null: the shared one.")
    size: int = Field(description="Bytes.")
    modified: float = Field(description="When it was changed last, UTC seconds.")
    link: str | None = Field(description="Where it points, when it is a link.")
    outside: bool = Field(description="A link that leads out of the outputs, or nowhere: it is not followed.")
    hash: str | None = Field(description="SHA-256, when asked for; null also when the file changes meanwhile.")
    writers: list[str] = Field(
        description="Replicas that have it open for writing now (best effort: local cluster only, and only now), or "
        "that brought it from a cluster where nothing is shared."
    )
    conflict: bool = Field(
        description="Two replicas have it open for writing at once, or both brought it; then the other copy lies in "
        "the directory of its replica."
    )


class Outputs(ApiModel):
    """The outputs of an experiment."""

    experiment: str = Field(description="Its id.")
    files: list[Output] = Field(description="In the order of paths.")
    more: bool = Field(description="There are more: ask again with `after`, the last path.")
    elsewhere: str | None = Field(description="Where the outputs are, when the server cannot see them.")


class ManifestEntry(ApiModel):
    """One file of a version."""

    path: str = Field(description="Relative, with `/`.")
    size: int = Field(description="Bytes.")
    hash: str = Field(description="SHA-256; `/api/blobs/{hash}` is the content.")


class Writer(ApiModel):
    """Who handed over which version."""

    replica: str = Field(description="`worker-2`")
    process: int = Field(description="Local rank.")
    version: int = Field(description="What it handed over.")


class Artifact(ApiModel):
    """One version of an artifact."""

    id: int = Field(description="Its number among all artifacts.")
    experiment: str = Field(description="Whose it is.")
    name: str = Field(description="As the script called it.")
    version: int = Field(description="Counted per experiment and name; the same content is the same version.")
    kind: str = Field(description="As the script said.")
    attempt: int = Field(description="In which attempt it was handed over first.")
    replica: str = Field(description="By whom.")
    process: int = Field(description="Local rank.")
    step: int | None = Field(description="At which step.")
    created: float = Field(description="When, UTC seconds.")
    size: int = Field(description="Bytes of all files.")
    count: int = Field(description="How many files.")
    digest: str = Field(description="Of paths and contents.")
    metadata: dict[str, Any] = Field(description="As the script said.")
    conflict: bool = Field(description="Two processes gave different content to the same path. All of it is kept.")
    writers: list[Writer] = Field(description="Who disagrees, and with which versions.")


class ArtifactDetail(Artifact):
    """One version of an artifact and its files."""

    files: list[ManifestEntry] = Field(description="In the order of paths.")


class Model(ApiModel):
    """One version of a model."""

    name: str = Field(description="Of the model.")
    version: int = Field(description="Counted over the whole home.")
    aliases: list[str] = Field(description="Words that mean this version.")
    experiment: str = Field(description="The id of the experiment that made it, which may be removed by now.")
    attempt: int = Field(description="In which attempt.")
    replica: str = Field(description="By whom.")
    process: int = Field(description="Local rank.")
    step: int | None = Field(description="At which step.")
    metrics: dict[str, Any] = Field(description="As the script said.")
    created: float = Field(description="When, UTC seconds.")
    size: int = Field(description="Bytes of all files.")
    count: int = Field(description="How many files.")
    digest: str = Field(description="Of paths and contents.")


class ModelDetail(Model):
    """One version of a model and its files."""

    files: list[ManifestEntry] = Field(description="In the order of paths.")


class AliasRequest(ApiModel):
    """Which version an alias is to mean."""

    version: Text = Field(description="A number, another alias, or `latest`.", max_length=80)
