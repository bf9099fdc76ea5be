"""Tracking: streams, series, records, artifacts, models, data sets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("replica", sa.String(length=64), nullable=False),
        sa.Column("process", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uid", "name", "version"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_artifacts_uid"), "artifacts", ["uid"], unique=False)
    op.create_table(
        "chunks",
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("min_step", sa.BigInteger(), nullable=False),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("min_time", sa.Float(), nullable=False),
        sa.Column("max_time", sa.Float(), nullable=False),
        sa.Column("groups", sa.LargeBinary(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("series", "number"),
    )
    op.create_table(
        "datasets",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version"),
    )
    op.create_table(
        "heads",
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "seq"),
    )
    op.create_table(
        "model_aliases",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", "alias"),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("experiment", sa.String(length=12), nullable=False),
        sa.Column("replica", sa.String(length=64), nullable=False),
        sa.Column("process", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version"),
    )
    op.create_index(op.f("ix_models_uid"), "models", ["uid"], unique=False)
    op.create_table(
        "records",
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("replica", sa.String(length=64), nullable=False),
        sa.Column("process", sa.Integer(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("pending", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "seq"),
    )
    op.create_index("records_of_experiment", "records", ["uid", "kind", "name"], unique=False)
    op.create_index("records_with_files", "records", ["pending"], unique=False)
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("min_step", sa.BigInteger(), nullable=False),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("first_time", sa.Float(), nullable=False),
        sa.Column("last_time", sa.Float(), nullable=False),
        sa.Column("last", sa.Float(), nullable=True),
        sa.Column("min", sa.Float(), nullable=True),
        sa.Column("max", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("stream", "name"),
        sqlite_autoincrement=True,
    )
    op.create_index("series_of_experiment", "series", ["uid", "name"], unique=False)
    op.create_table(
        "streams",
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("replica", sa.String(length=64), nullable=False),
        sa.Column("try", sa.Integer(), nullable=False),
        sa.Column("process", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("restart", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("header", sa.JSON(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("ended", sa.JSON(), nullable=True),
        sa.Column("heard", sa.Float(), nullable=False),
        sa.Column("dropped", sa.Integer(), nullable=False),
        sa.Column("gaps", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("stream"),
    )
    op.create_index(op.f("ix_streams_uid"), "streams", ["uid"], unique=False)
    op.add_column("experiments", sa.Column("origin", sa.String(length=16), server_default="run", nullable=False))
    op.add_column("experiments", sa.Column("origin_key", sa.String(length=128), nullable=True))
    op.add_column("experiments", sa.Column("tracked", sa.Boolean(), server_default="0", nullable=False))
    op.add_column("experiments", sa.Column("metrics", sa.JSON(), nullable=True))
    op.add_column("experiments", sa.Column("progress", sa.JSON(), nullable=True))
    op.add_column("experiments", sa.Column("provenance", sa.JSON(), nullable=True))
    op.add_column("experiments", sa.Column("scale", sa.JSON(), nullable=True))
    op.add_column("experiments", sa.Column("revision", sa.Integer(), server_default="1", nullable=False))
    op.create_index("experiments_of_origin", "experiments", ["origin_key"], unique=True)
    op.create_index("experiments_to_list", "experiments", ["number", "revision"], unique=False)
    op.create_index("experiments_to_track", "experiments", ["tracked"], unique=False)
