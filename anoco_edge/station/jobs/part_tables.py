"""The tables of station.db about jobs and about trials of new generations.

The line reads `shadow` too, see anoco_edge/line/store/station_wishes.py.
"""

from __future__ import annotations

_JOB = """
CREATE TABLE job (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, by TEXT NOT NULL,
    at TEXT NOT NULL, request TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    progress REAL NOT NULL DEFAULT 0, note TEXT NOT NULL DEFAULT '', result TEXT, problem TEXT,
    ended TEXT
) STRICT;
CREATE INDEX job_same ON job (kind, request);
CREATE INDEX job_waiting ON job (at) WHERE state IN ('queued', 'running');
"""
_SHADOW = """
CREATE TABLE shadow (
    id INTEGER PRIMARY KEY, state TEXT NOT NULL, by TEXT NOT NULL, at TEXT NOT NULL,
    product INTEGER NOT NULL, capture INTEGER NOT NULL, candidate TEXT NOT NULL,
    parts INTEGER NOT NULL, rule TEXT NOT NULL, note TEXT NOT NULL DEFAULT '', ended TEXT,
    job TEXT
) STRICT;
"""
_SHADOW_PART = """
CREATE TABLE shadow_part (
    shadow INTEGER NOT NULL REFERENCES shadow (id), uid TEXT NOT NULL, verdict TEXT NOT NULL,
    ratio REAL, new_verdict TEXT NOT NULL, new_ratio REAL, PRIMARY KEY (shadow, uid)
) STRICT;
"""
PART_TABLES = {"job": _JOB, "shadow": _SHADOW, "shadow_part": _SHADOW_PART}
"""The statements that make each table and its indices, by its name."""
