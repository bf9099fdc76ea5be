"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "experiments",
        sa.Column("uid", sa.String(32), primary_key=True),
        sa.Column("id", sa.String(12), nullable=False, unique=True),
        sa.Column("number", sa.Integer, nullable=False, unique=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("state", sa.String(12), nullable=False, index=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("framework", sa.String(32), nullable=False),
        sa.Column("backend", sa.String(32), nullable=False),
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("handle", sa.Text),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("finished", sa.Float),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("sources", sa.JSON, nullable=False),
        sa.Column("resolved", sa.Text, nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("policy", sa.JSON, nullable=False),
        sa.Column("cwd", sa.Text, nullable=False),
        sa.Column("oversubscribe", sa.Boolean, nullable=False),
        sa.Column("timeout_queue", sa.Float),
        sa.Column("stop", sa.JSON),
        sa.Column("first_failure", sa.JSON),
        sa.Column("rerun_of", sa.String(32)),
    )
    op.create_table(
        "replicas",
        sa.Column("uid", sa.String(32), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("replica", sa.String(64), primary_key=True),
        sa.Column("try", sa.Integer, primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("signal", sa.String(16), nullable=False),
        sa.Column("node", sa.String(128), nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("finished", sa.Float),
    )
    op.create_table(
        "events",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("uid", sa.String(32), nullable=False),
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("replica", sa.String(64)),
        sa.Column("try", sa.Integer),
        sa.Column("from_state", sa.String(12), nullable=False),
        sa.Column("to_state", sa.String(12), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("events_of_experiment", "events", ["uid", "number"])
    op.create_table(
        "allocations",
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("unit", sa.Integer, primary_key=True),
        sa.Column("uid", sa.String(32), nullable=False, index=True),
        sa.Column("replica", sa.String(64), nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("value", sa.Integer, nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("renewed", sa.Float, nullable=False),
    )
