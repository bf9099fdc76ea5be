"""The tables. Only the server opens the database; every write is one short transaction.

A change here needs a revision in `migrations/versions` and a new HEAD; a test compares the two ways to the same schema.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

HEAD = "0002"

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
    Column("origin", String(16), nullable=False, default="run", server_default="run"),  # run | outside | import
    Column("origin_key", String(128)),  # by which ranks outside Shoal find each other
    Column(
        "tracked", Boolean, nullable=False, default=False, server_default="0"
    ),  # over, and all of it is in the store
    Column("metrics", JSON),  # {name: {last, min, max, step, time}} of what is compacted: a list reads no history
    Column("progress", JSON),  # {fraction, time, started}: what the script said last
    Column("provenance", JSON),  # git commit and diff, packages, host, data sets
    Column("scale", JSON),  # {id, workers}: which trial of which `shoal scale`
    # Counts changes, by itself: what a list has rendered once is good while this is the same.
    Column("revision", Integer, nullable=False, default=1, server_default="1", onupdate=text("revision + 1")),
    Index("experiments_of_origin", "origin_key", unique=True),
    Index("experiments_to_track", "tracked"),
    Index("experiments_to_list", "number", "revision"),
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

# One process incarnation that writes. `segment` and `offset` are how far its files are read, `seq` what comes next.
streams = Table(
    "streams",
    metadata,
    Column("stream", String(64), primary_key=True),
    Column("uid", String(32), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("replica", String(64), nullable=False),
    Column("try", Integer, nullable=False),
    Column("process", Integer, nullable=False),  # local rank
    Column("rank", Integer, nullable=False),  # over all processes
    Column("restart", Integer, nullable=False),  # how often a process launcher inside the replica started it anew
    Column("kind", String(16), nullable=False),  # metric | resource | tensorboard | import
    Column("started", Float, nullable=False),
    Column("header", JSON, nullable=False),
    Column("segment", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("closed", Boolean, nullable=False),  # nothing follows
    Column("ended", JSON),  # its last frame, when it said goodbye
    Column("heard", Float, nullable=False),  # when something new was found in it
    Column("dropped", Integer, nullable=False),  # calls that the script's buffer did not take
    Column("gaps", JSON, nullable=False),  # [{segment, offset, length, seq, frames}]: what was damaged
)

# What was read and is not in chunks yet: whole frames as they were, one row for each time they were read.
heads = Table(
    "heads",
    metadata,
    Column("stream", String(64), primary_key=True),
    Column("seq", Integer, primary_key=True),  # of its first frame
    Column("points", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

# One metric of one stream, with what can be said of it without reading its points.
series = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("stream", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", String(32), nullable=False),
    Column("count", Integer, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("min_step", BigInteger, nullable=False),  # the smallest of all
    Column("max_step", BigInteger, nullable=False),
    Column("first_time", Float, nullable=False),
    Column("last_time", Float, nullable=False),
    Column("last", Float),  # NULL is NaN: SQLite cannot keep it
    Column("min", Float),  # of what is not NaN
    Column("max", Float),
    UniqueConstraint("stream", "name"),
    Index("series_of_experiment", "uid", "name"),
    sqlite_autoincrement=True,
)

# Points of one series as columns. `groups` is what a chart of all of it reads; `data` the points themselves.
chunks = Table(
    "chunks",
    metadata,
    Column("series", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("min_step", BigInteger, nullable=False),
    Column("max_step", BigInteger, nullable=False),
    Column("min_time", Float, nullable=False),
    Column("max_time", Float, nullable=False),
    Column("groups", LargeBinary, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

# What scripts said beside points: params, tags, text, images, tables, histograms, artifacts, checkpoints, progress.
records = Table(
    "records",
    metadata,
    Column("stream", String(64), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("uid", String(32), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", Text, nullable=False, default=""),
    Column("step", BigInteger),
    Column("time", Float, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("replica", String(64), nullable=False),
    Column("process", Integer, nullable=False),
    Column("data", JSON, nullable=False),
    Column("pending", Boolean, nullable=False, default=False),  # its files are not in blobs/ yet
    Index("records_of_experiment", "uid", "kind", "name"),
    Index("records_with_files", "pending"),
)

# Versions of content. `manifest` is [{path, size, hash}]; the hashes name files in blobs/.
artifacts = Table(
    "artifacts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("uid", String(32), nullable=False, index=True),
    Column("name", String(256), nullable=False),
    Column("version", Integer, nullable=False),  # counted per experiment and name
    Column("kind", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("replica", String(64), nullable=False),
    Column("process", Integer, nullable=False),
    Column("step", BigInteger),
    Column("created", Float, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),  # of the manifest: the same content is the same version
    Column("manifest", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    UniqueConstraint("uid", "name", "version"),
    sqlite_autoincrement=True,
)

models = Table(
    "models",
    metadata,
    Column("name", String(256), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("uid", String(32), nullable=False, index=True),
    Column("experiment", String(12), nullable=False),  # its short id, which outlives it
    Column("replica", String(64), nullable=False),
    Column("process", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger),
    Column("metrics", JSON, nullable=False),
    Column("created", Float, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("manifest", JSON, nullable=False),
)

model_aliases = Table(
    "model_aliases",
    metadata,
    Column("name", String(256), primary_key=True),
    Column("alias", String(64), primary_key=True),
    Column("version", Integer, nullable=False),
)

datasets = Table(
    "datasets",
    metadata,
    Column("name", String(256), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("kind", String(16), nullable=False),  # managed | path | object
    Column("uri", Text, nullable=False),  # empty for managed ones
    Column("options", JSON, nullable=False),  # {anonymous, endpoint, region}
    Column("created", Float, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("files", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("manifest", JSON, nullable=False),  # [{path, size, hash | etag | mtime}]
)

alembic_version = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))
