"""DuckDB: the lines of a folder of messages, read with the types that the page names."""

from __future__ import annotations

import json
import sys

import duckdb

COLUMNS = "{id: 'VARCHAR', messages: 'JSON[]', tools: 'JSON[]'}"
NAMES = ("id", "messages", "tools")

lines = f"read_json('{sys.argv[1]}/**/*.jsonl', columns={COLUMNS})"
rows = duckdb.sql(f"SELECT {', '.join(NAMES)} FROM {lines}")
print(json.dumps([dict(zip(NAMES, row, strict=True)) for row in rows.fetchall()]))
