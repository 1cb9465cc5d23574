"""What commands that tune, fit, evaluate and label say of what they refuse, and of what is too little."""

from __future__ import annotations

import json

import pytest

from support.texts import check, transcripts
from support.traces import LABELS

WEIGHTS = "complexity = 0.2\nnovelty = 0.3\ntool_diversity = 0.3\noutcome_confidence = 0.2000001\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, scored, real_traces):
    """Return a folder of the files that the transcripts name."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    first, *_ = labels = LABELS.read_text().splitlines(keepends=True)
    contents = {
        "scored.jsonl": scored.read_text(),
        "labels.jsonl": "".join(labels),
        "raw.jsonl": real_traces[0].decode(),
        "bare.jsonl": [{name: value for name, value in lines[0].items() if name != "content"}],
        "empty.jsonl": "",
        "half.jsonl": scored.read_text()[:-30],
        "equal.jsonl": [{**lines[0], "id": f"{n}", "content": {**lines[n]["content"]}} for n in range(60)],
        "labels-of-others.jsonl": [{"id": "kp:trace:other", "keep": True}],
        "labels-maybe.jsonl": [{"id": lines[0]["id"], "keep": "maybe"}],
        "labels-cut.jsonl": "".join(labels)[: len(first) + 20],
        "labels-of-equal.jsonl": [{"id": f"{n}", "keep": n % 2 == 0} for n in range(60)],
        "labels-of-one-group.jsonl": [
            {"id": trace["id"], "keep": n % 2 == 0, "group": 1} for n, trace in enumerate(lines)
        ],
        "policy.toml": "[policy]\n",
        "above.toml": "[policy]\nthreshold = 1.2\n",
        "typo.toml": "[polcy]\nthreshold = 0.5\n",
        "sum.toml": f"[policy.domains.code.weights]\n{WEIGHTS}",
    }
    for name, content in contents.items():
        text = content if isinstance(content, str) else "".join(f"{json.dumps(line)}\n" for line in content)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("transcript", transcripts("curator.txt"))
def test_what_is_said_and_nothing_is_written(transcript, folder, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDING__BACKEND", "none")
    check(transcript, folder)
