"""The tables. Only the server opens the database; every write is one short transaction.

A change here needs a revision in `migrations/versions` and a new HEAD; a test compares the two ways to the same schema.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

HEAD = "0001"

metadata = MetaData()

experiments = Table(
    "experiments",
    metadata,
    Column("uid", String(32), primary_key=True),
    Column("id", String(12), nullable=False, unique=True),
    Column("number", Integer, nullable=False, unique=True),
    Column("name", String(128), nullable=False, default=""),
    Column("state", String(12), nullable=False, index=True),
    Column("reason", Text, nullable=False, default=""),
    Column("framework", String(32), nullable=False),
    Column("backend", String(32), nullable=False),
    Column("cluster", String(64), nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("handle", Text),  # of the newest attempt, once it is submitted
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("finished", Float),
    Column("params", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("sources", JSON, nullable=False),  # the files as written: [{name, text}], and -P
    Column("resolved", Text, nullable=False),  # the file in the newest spelling, merged and filled in
    Column("plan", JSON, nullable=False),
    Column("policy", JSON, nullable=False),
    Column("cwd", Text, nullable=False),
    Column("oversubscribe", Boolean, nullable=False, default=False),
    Column("timeout_queue", Float),
    Column("stop", JSON),  # {reason, grace, asked}: a wish that the engine carries out
    Column("first_failure", JSON),
    Column("rerun_of", String(32)),
)

replicas = Table(
    "replicas",
    metadata,
    Column("uid", String(32), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("replica", String(64), primary_key=True),
    Column("try", Integer, primary_key=True),
    Column("role", String(16), nullable=False),
    Column("index", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("state", String(12), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Column("exit_code", Integer),
    Column("signal", String(16), nullable=False, default=""),
    Column("node", String(128), nullable=False, default=""),
    Column("started", Float),
    Column("finished", Float),
)

# Every change of a state is a row: when, from, to, why. The number is the cursor of the event stream.
events = Table(
    "events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("time", Float, nullable=False),
    Column("uid", String(32), nullable=False),
    Column("id", String(12), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("replica", String(64)),
    Column("try", Integer),
    Column("from_state", String(12), nullable=False),
    Column("to_state", String(12), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Index("events_of_experiment", "uid", "number"),
    sqlite_autoincrement=True,
)

# What an admitted experiment holds on the local cluster: GPUs and ports by number.
allocations = Table(
    "allocations",
    metadata,
    Column("kind", String(8), primary_key=True),
    Column("unit", Integer, primary_key=True),
    Column("uid", String(32), nullable=False, index=True),
    Column("replica", String(64), nullable=False),
)

# Numbers are given once: that of a removed experiment does not come back.
counters = Table(
    "counters",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("value", Integer, nullable=False),
)

# Fences a server that slept while another took over: each write renews the row, and only its holder can.
lease = Table(
    "lease",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("renewed", Float, nullable=False),
)

alembic_version = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))
