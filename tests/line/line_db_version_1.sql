CREATE TABLE part (
    uid TEXT PRIMARY KEY, seq INTEGER NOT NULL, part_code TEXT NOT NULL, client TEXT NOT NULL,
    accepted INTEGER NOT NULL, at TEXT NOT NULL, trigger_ns INTEGER NOT NULL, decided_ns INTEGER,
    verdict TEXT, reason INTEGER, ratio REAL, product INTEGER, generation INTEGER, checksum INTEGER,
    acquire_ms INTEGER, total_ms INTEGER, reserve_ms INTEGER, simulated INTEGER,
    config TEXT NOT NULL
) STRICT;
CREATE INDEX part_at ON part (at);
CREATE INDEX part_pending ON part (uid) WHERE verdict IS NULL;
CREATE TABLE capture (
    uid TEXT NOT NULL REFERENCES part (uid), number INTEGER NOT NULL, camera TEXT NOT NULL,
    counter INTEGER, exposed_from INTEGER, exposed_to INTEGER, verdict TEXT, reason INTEGER,
    ratio REAL, bundle TEXT, bundle_sha256 TEXT, product TEXT, generation INTEGER,
    picture TEXT, bytes INTEGER, PRIMARY KEY (uid, number)
) STRICT;
CREATE INDEX capture_picture ON capture (picture) WHERE picture IS NOT NULL;
CREATE TABLE late (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL, number INTEGER NOT NULL, verdict TEXT NOT NULL,
    ratio REAL NOT NULL, received_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, uid TEXT NOT NULL, body TEXT NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, UNIQUE (sink, uid)
) STRICT;
CREATE INDEX outbox_unsent ON outbox (sink, id) WHERE sent = 0;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE io_event (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, level TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE config (
    revision TEXT PRIMARY KEY, at TEXT NOT NULL, document TEXT NOT NULL
) STRICT;
