"""The documents do what they say: each block is run in order, in one folder, as a reader would."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from knowledgepulse_worker.tools.demo.processes import free_ports
from support.documents import DOCUMENTS, Reader, blocks

WITH_A_WORKER = {"docs/curators/audit.md", "docs/operators/dead-letters.md", "docs/operators/monitoring.md"}
NEEDS_KAFKA = {
    "README.md",
    "docs/consumers/consume.md",
    "docs/consumers/export.md",
    *WITH_A_WORKER,
    "docs/producers/publish.md",
    "docs/producers/convert.md",
}
NEEDS_MODEL = {"README.md", "docs/curators/threshold.md"}

CHAT = [{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "Done"}]
SPAN = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "helm_agent",
    "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "Fix it"}]}]',
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "Done"}]}]',
}
ATTRIBUTES = [{"key": name, "value": {"stringValue": value}} for name, value in SPAN.items()]
IDS = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b173"}
SPANS = {"resourceSpans": [{"scopeSpans": [{"spans": [{**IDS, "attributes": ATTRIBUTES}]}]}]}

WORKER = [
    "kp-worker config > worker.toml",
    "kp-worker topics --partitions 1",
    "echo '{}' | cat - worker/knowledgepulse_worker/tools/demo/real_traces.jsonl > traces.jsonl",
    "kp-worker publish traces.jsonl",
    "kp-worker run",
    "until kp-worker dead-letters list | grep invalid_trace; do :; done",
    "curl --silent --fail --retry 60 --retry-all-errors --retry-delay 1 http://localhost:6066/readyz",
]
BEFORE = {
    **dict.fromkeys(WITH_A_WORKER, WORKER),
    "docs/consumers/export.md": [
        "kp-worker config > worker.toml",
        "kp-worker topics --partitions 1",
        f"mkdir sessions; cat > sessions/one.jsonl <<'END'\n{json.dumps(CHAT)}\nEND",
    ],
    "docs/consumers/consume.md": [
        "kp-worker topics",
        "kp-worker publish tests/data/reference_traces.jsonl",
        "kp-worker run",
    ],
    "docs/producers/publish.md": [
        "cp tests/data/reference_traces.jsonl traces.jsonl",
        "kp-worker topics",
    ],
    "docs/producers/convert.md": [
        "kp-worker topics",
        f"cat > chats.jsonl <<'END'\n{json.dumps(CHAT)}\nEND",
        f"cat > spans.json <<'END'\n{json.dumps(SPANS)}\nEND",
    ],
}
"""What a document takes for granted."""


def marked(document):
    needs = [
        *([pytest.mark.integration] if document in NEEDS_KAFKA else []),
        *([pytest.mark.model] if document in NEEDS_MODEL else []),
    ]
    return pytest.param(document, marks=needs)


@pytest.fixture
def reader(request, tmp_path):
    """A reader with a broker, topics and a port of its own where the document needs them."""
    document = request.node.callspec.params["document"]
    environment, renamed, prefix = {}, {}, ""
    if document not in NEEDS_MODEL:
        environment["KP_EMBEDDING__BACKEND"] = "lexical"
    if document in {"docs/consumers/consume.md", "docs/consumers/export.md"}:
        environment["KP_POLICY__THRESHOLD"] = "0"
    if document in NEEDS_KAFKA:
        servers = request.getfixturevalue("broker").bootstrap_servers
        prefix, port = f"documents-{uuid4().hex[:8]}-", free_ports(1)[0]
        environment |= {
            "KP_KAFKA__BOOTSTRAP_SERVERS": servers,
            "KP_KAFKA__GROUP": f"{prefix}knowledgepulse-worker",
            "KP_TOPICS__RAW": f"{prefix}raw-traces",
            "KP_TOPICS__CONTRIBUTE": f"{prefix}contribute",
            "KP_TOPICS__REJECTED": f"{prefix}rejected",
            "KP_TOPICS__DEAD_LETTER": f"{prefix}dead-letter",
            "KP_WEB__PORT": str(port),
        }
        renamed = {
            "localhost:9092": servers,
            "localhost:6066": f"localhost:{port}",
            "raw-traces": f"{prefix}raw-traces",
            '"contribute"': f'"{prefix}contribute"',
        }
    reader = Reader(tmp_path, environment, renamed, prefix)
    yield reader
    reader.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", [marked(name) for name in DOCUMENTS if blocks(name)])
def test_a_document_does_what_it_says(document, reader):
    for commands in BEFORE.get(document, ()):
        reader.shell(commands)

    reader.read(document)
