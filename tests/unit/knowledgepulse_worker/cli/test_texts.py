"""What commands say of files, names, options and settings that they refuse."""

from __future__ import annotations

import gzip
import json
import lzma
from importlib import resources

import pytest

from support.texts import check, transcripts

CHAT = json.dumps([{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "Done"}], indent=2)
SAMPLES = resources.files("knowledgepulse_worker.tools") / "sample"
CONTENTS = {
    # Whole files of another kind.
    "nothing.json": b"",
    "blank.json": b"\n",
    "list.json": b"[]",
    "archive.zip": b"PK\x03\x04\x00binary",
    "program": b"\x7fELF\2\1\1\0",
    "picture": b"\x89PNG\r\n\x1a\n",
    "rows.parquet": b"PAR1\x15\x04\n\x15\n",
    "rows.arrow": b"ARROW1\x00\x00\n\xff",
    "runs.db": b"SQLite format 3\x00" + b"\x10\x00\n\x01" * 50,
    "runs.lz4": b"\x04\x22\x4d\x18d\n",
    "runs.tar": b"a.jsonl".ljust(257, b"\x00") + b"ustar\x0000\n{}\n",
    "paper.pdf": b"%PDF-1.7\n\xe2\xe3",
    "page.html": b"<!DOCTYPE html>\n<html></html>\n",
    "aider.md": b"\n# aider chat started at 2026-10-01\n\n#### fix it\n",
    "aider.log": b"TO LLM 2026-10-01T12:00:00\n-------\nUSER fix it\n",
    "rows.csv": b'messages,reward\n"[]",1\n',
    "rows.CSV.old": b'messages,reward\n"[]",1\n',
    "chat.yaml": b"messages:\n- role: user\n",
    "chat.md": b"## User\n\nFix it\n",
    "session.jsonl": (SAMPLES / "session.jsonl").read_bytes(),
    "chat.json": (SAMPLES / "chat.json").read_bytes(),
    "spans.json": (SAMPLES / "spans.json").read_bytes(),
    # Damaged documents.
    "cut.json": CHAT[:-5].encode(),
    "cut.jsonl": b'{"type": "user", "uuid": "1", "mess',
    "deep.json": b"[" * 100_000,
    "garbage.json": b"\n\x7f\x00garbage",
    "odd.json": b'{"type": []}',
    "zeros.pb": bytes(8),
    # Files beside traces.
    "scored.jsonl": b'{"id": "a", "quality_score": 0.5, "decision": "rejected"}',
    "kode.toml": b"[policy.domains.kode]\n[policy.domains.code]\n[policy.domains.own]\n",
    "web.toml": b"[web]\nport = 6067\n",
    "above.jsonl": b'{"id": "1", "confidence": 1.5}',
    "typo.jsonl": b'\n{"id": "1", "succes": true}',
    "pairs.csv": b"1,true",
    "number.toml": b"fixer = 1",
    "map.yaml": b"fixer: code",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, real_traces):
    """Return a folder of the files that the transcripts name."""
    folder = tmp_path_factory.mktemp("texts")
    traces = b"\n".join(real_traces) + b"\n"
    made = {
        "traces.jsonl": traces,
        "trace.json": real_traces[0],
        "invalid.jsonl": b"no trace\n",
        "pretty.json": json.dumps(json.loads(real_traces[0]), indent=2).encode(),
        "pretty-list.json": json.dumps([json.loads(line) for line in real_traces[:2]], indent=2).encode(),
        "utf-16.jsonl": traces.decode().encode("utf-16"),
        "traces.jsonl.gz": gzip.compress(traces),
        "traces.jsonl.xz": lzma.compress(traces),
        "rows.parquet.gz": gzip.compress(CONTENTS["rows.parquet"]),
        "page.html.gz": gzip.compress(CONTENTS["page.html"]),
    }
    for name, content in (CONTENTS | made).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("transcript", transcripts("worker.txt"))
def test_what_is_said_and_nothing_is_written(transcript, folder):
    check(transcript, folder)
