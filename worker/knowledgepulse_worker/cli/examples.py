"""The commands by the tasks that people have, each with an example."""

from __future__ import annotations

TASKS = {
    "Score your own runs, without Kafka": "sample convert pull score score-runs",
    "Publish traces": "publish assemble",
    "Run workers": "check topics run config demo",
    "Look at what they did": "traces dead-letters audit",
    "Choose what passes": "policy",
    "Pass on what passed": "export evaluations contributions",
}
"""The names of the commands by task, in the order in which people do them."""

OTHER_WORDS = {
    "explain": "traces show",
    "init": "config",
    "status": "check",
    "threshold": "policy tune",
    "validate": "check",
}
"""The commands by what they are called elsewhere."""

EXAMPLES = {
    "sample": "kp-worker sample traces > traces.jsonl",
    "convert": "kp-worker convert session.jsonl > traces.jsonl",
    "pull": "kp-worker pull phoenix http://127.0.0.1:6006 --state runs.state --output traces.jsonl",
    "score": "kp-worker score traces.jsonl --embedder lexical",
    "score-runs": "kp-worker score-runs phoenix http://127.0.0.1:6006 --embedder lexical",
    "publish": "kp-worker publish traces.jsonl --config worker.toml",
    "assemble": "kp-worker assemble --config worker.toml",
    "check": "kp-worker check --config worker.toml",
    "topics": "kp-worker topics --config worker.toml --partitions 4 --dry-run",
    "run": "kp-worker run --config worker.toml",
    "config": "kp-worker config --config worker.toml --changed",
    "demo": "kp-worker demo --backend lexical",
    "traces": "kp-worker traces list --min 0.7 --config worker.toml",
    "traces list": "kp-worker traces list --min 0.7 --since 1h --config worker.toml",
    "traces show": "kp-worker traces show raw-traces/0/17 --config worker.toml",
    "dead-letters": "kp-worker dead-letters list --config worker.toml",
    "dead-letters list": "kp-worker dead-letters list --reason not_json --config worker.toml",
    "dead-letters show": "kp-worker dead-letters show 0/17 --config worker.toml",
    "dead-letters replay": "kp-worker dead-letters replay --reason scoring_failed --config worker.toml",
    "audit": "kp-worker audit --config worker.toml",
    "policy": "kp-worker policy tune scored.jsonl --target 0.1",
    "policy check": "kp-worker policy check policy.toml",
    "policy diff": "kp-worker policy diff old.toml new.toml",
    "policy drift": "kp-worker policy drift scored.jsonl --reference reference.json",
    "policy evaluate": "kp-worker policy evaluate scored.jsonl --labels labels.jsonl",
    "policy fit": "kp-worker policy fit scored.jsonl --labels labels.jsonl --output fitted.toml",
    "policy history": "kp-worker policy history --config worker.toml",
    "policy label": "kp-worker policy label traces.jsonl --by ann --output labels.jsonl",
    "policy prior": "kp-worker policy prior code-prior-1 --output proposed.toml",
    "policy rescore": "kp-worker policy rescore scored.jsonl --policy new.toml",
    "policy show": "kp-worker policy show --config worker.toml",
    "policy tune": "kp-worker policy tune scored.jsonl --target 0.1",
    "export": "kp-worker export dataset --config worker.toml",
    "evaluations": "kp-worker evaluations --to phoenix http://127.0.0.1:6006 --config worker.toml",
    "contributions": "kp-worker contributions send --config worker.toml",
    "contributions send": "kp-worker contributions send --config worker.toml",
    "contributions delete": "kp-worker contributions delete ID --config worker.toml",
}
"""An example of each command, by its name."""
