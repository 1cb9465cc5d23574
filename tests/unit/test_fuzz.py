"""Commands on mutated files: each gives a result or a refusal of one clear line, and never a traceback.

The first inputs of each command are the same at every run. `make fuzz SECONDS=600` goes on for that time.
"""

from __future__ import annotations

import json
import os
import random
import tomllib
import traceback
import unicodedata
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from click.testing import CliRunner

from knowledgepulse_curator.fitting.fit_command import NO_PROPOSAL
from knowledgepulse_worker.cli import entry
from knowledgepulse_worker.tools.publish import publication
from support.conversions import FOLDER, read_cases
from support.hooks import converted_here
from support.mutations import as_json, as_lines, as_toml, damaged, mutated
from support.processes import peak_rss
from support.traces import LABELS, real_traces

INPUTS = 10
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
MOST_MEMORY = 500_000_000
"""Bytes by which a process may grow for files of at most a few megabytes."""

POLICY = """[policy]
threshold = 0.4
[policy.domains.code]
share = 0.2
min_novelty = 0.05
[policy.domains.code.weights]
complexity = 0.2
novelty = 0.3
tool_diversity = 0.3
outcome_confidence = 0.2
[policy.domains.customer_service.learned]
share = 1.0
facts_version = 1
intercept = -0.9
[policy.domains.customer_service.learned.terms.steps]
mean = 3.3
deviation = 0.4
weight = -0.07
clip = 3.0
"""

COMMANDS = {
    "config": "config --config SETTINGS",
    "convert": "convert RUN --domain-map DOMAINS --outcomes OUTCOMES",
    "convert, other options": "convert RUN --per-request --keep-prompt",
    "export": "export OUT OUTPUTS --also messages --also atif --embedder none",
    "export, the best": "export OUT OUTPUTS --best 2 --labels LABELS --policy POLICY --also messages",
    "export to a dataset": "export SET OUTPUTS --also messages --embedder none",
    "policy check": "policy check POLICY",
    "policy diff": "policy diff POLICY POLICY2",
    "policy drift": "policy drift SCORED --reference REFERENCE",
    "policy evaluate": "policy evaluate SCORED --labels LABELS --policy POLICY",
    "policy fit": "policy fit SCORED --labels LABELS --policy POLICY",
    "policy fit, words": "policy fit SCORED --labels LABELS --words --json",
    "policy prior": "policy prior code-prior-1 SCORED --policy POLICY",
    "policy rescore": "policy rescore SCORED --policy POLICY",
    "policy tune": "policy tune SCORED --policy POLICY",
    "publish": "publish --dry-run TRACES",
    "publish, converted": "publish --dry-run --from auto RUN",
    "publish, hook": "publish --dry-run --hook HOOK",
    "score": "score TRACES --embedder lexical --partitions 7",
    "score, settings": "score TRACES --dry-run --config SETTINGS",
    "traces list": "traces list SCORED",
    "traces list, raw": "traces list TRACES --embedder none",
    "traces show": "traces show kp:trace:129e0f12-bb26-58d0-b055-382ae541a63d SCORED --policy POLICY",
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Return valid contents by name: each a function that writes a value, and possible values."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "traces.jsonl").write_bytes(b"\n".join(real_traces()[:40]))
    score = kp_worker("score", folder / "traces.jsonl", "--embedder", "none")
    scored = [json.loads(line) for line in score.stdout.splitlines()]
    traces = [json.loads(line) for line in real_traces()[:4]]
    outputs = [{**trace, "metadata": {**trace["metadata"], "quality_score": 0.8}} for trace in traces]
    (folder / "scored.jsonl").write_text(as_lines(scored))
    (folder / "outputs.jsonl").write_text(as_lines(outputs))
    kp_worker("policy", "drift", folder / "scored.jsonl", "--accept", folder / "reference.json")
    kp_worker(*f"export {folder}/set {folder}/outputs.jsonl --also messages --embedder none".split())
    labels = [json.loads(line) for line in LABELS.read_text().splitlines()]
    runs = [case["document"] for file in sorted(FOLDER.glob("*.jsonl")) for case in read_cases(file)]
    hook = {"session_id": "a", "transcript_path": str(folder / "traces.jsonl")}
    settings = {"kafka": {"group": "a"}, "limits": {"budget": 0.2}, "fleet": {"agent_ids": ["a"]}}
    return {
        "DOMAINS": (as_toml, [{"fixer": "code"}]),
        "HOOK": (as_json, [hook]),
        "LABELS": (as_lines, [labels]),
        "OUTCOMES": (as_lines, [[{"id": "a", "success": True, "confidence": 0.8}, {"id": "b"}]]),
        "OUTPUTS": (as_lines, [outputs]),
        "POLICY": (as_toml, [tomllib.loads(POLICY)]),
        "POLICY2": (as_toml, [{"policy": {"threshold": 0.5}}]),
        "REFERENCE": (as_json, [json.loads((folder / "reference.json").read_text())]),
        "RUN": (as_lines, runs),
        "SCORED": (as_lines, [scored]),
        "SET": (as_json, [json.loads((folder / "set/manifest.json").read_text())]),
        "SETTINGS": (as_toml, [{**settings, **tomllib.loads(POLICY)}]),
        "TRACES": (as_lines, [traces]),
    }


def kp_worker(*arguments):
    return CliRunner().invoke(entry.main, [*map(str, arguments)])


@pytest.mark.timeout(300 + SECONDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_mutated_file_gives_a_result_or_a_clear_line(name, samples, tmp_path, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDING__BACKEND", "none")
    monkeypatch.setattr(publication, "converted_apart", converted_here)
    words = COMMANDS[name].split()
    read = [word for word in words if word in samples]
    before = _reset_peak()
    until, number = monotonic() + SECONDS, 0
    while number < INPUTS or monotonic() < until:
        random_ = random.Random(f"{name} {number}")
        changed = random_.choice(read)
        folder = tmp_path / str(number)
        paths = {word: _write(folder, word, *samples[word], random_, word == changed) for word in read}
        result = kp_worker(*(paths.get(word, folder / "out" if word == "OUT" else word) for word in words))
        _check(result, f"{name}, input {number}: {changed} in {folder}")
        number += 1
    assert peak_rss(os.getpid()) - before < MOST_MEMORY


def _reset_peak():
    """Start to measure the peak memory of this process, in which other tests have run; return its memory."""
    with suppress(OSError):  # otherwise, only growth above the former peak is seen
        Path("/proc/self/clear_refs").write_text("5")
    return peak_rss(os.getpid())


def _write(folder, name, written, values, random_, is_changed):
    """Write a sample, mutated if it is the one to change, and return its path."""
    value = random_.choice(values)
    content = written(mutated(random_, value) if is_changed else value).encode()
    path = folder / name / "manifest.json" if name == "SET" else folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(damaged(random_, content) if is_changed else content)
    return folder / name


def _check(result, case):
    """Check that a command ended as it should, whatever it read."""
    error = result.exception
    assert isinstance(error, SystemExit | None), f"{case}: {''.join(traceback.format_exception(error))}"
    assert result.exit_code in (0, 1, 2, NO_PROPOSAL, os.EX_CONFIG), case
    assert "Traceback" not in result.stderr, case
    assert result.stderr or not result.exit_code, f"{case}: no word about it"
    assert all(len(line) < 1_500 for line in result.stderr.splitlines()), case
    odd = {sign for sign in result.stderr if unicodedata.category(sign) in ("Cc", "Cf") and sign != "\n"}
    assert not odd, f"{case}: {odd}"
