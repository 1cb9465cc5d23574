#!/usr/bin/env bash
# Expected: with the type String for a member that holds an object, Polars reads its JSON as text.
# Seen: quotation marks in the text are escaped, backslashes are not: the text is no JSON, or means something else.
# Versions: polars 2.1.0, 2026-11-28
# So: docs/reference/dataset.md sends readers with Polars to the Parquet files, and names the types for DuckDB alone.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages polars==2.1.0

cat >read.py <<'PY'
import json

import polars as pl

for text in ('say "hi"', "round\\("):
    with open("lines.jsonl", "w") as file:
        file.write(json.dumps({"call": {"pattern": text}}) + "\n")
    read = pl.read_ndjson("lines.jsonl", schema={"call": pl.String})["call"][0]
    try:
        print(text, "|", read, "|", json.loads(read) == {"pattern": text})
    except ValueError as error:
        print(text, "|", read, "|", error)
PY
venv/bin/python read.py | tee output
diff - output <<'SEEN'
say "hi" | {"pattern": "say \"hi\""} | True
round\( | {"pattern": "round\("} | Invalid \escape: line 1 column 19 (char 18)
SEEN
