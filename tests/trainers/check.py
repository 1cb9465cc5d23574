"""Read exported chat messages with trainers at their newest releases: `make check NAME=trainers`.

Each reader is a script that runs in an environment of its own, reads a folder of messages as its users would,
and prints the texts that a model would learn, one for each row that it keeps. The tables of
docs/consumers/export.md are written from what they print.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PAGE = ROOT / "docs/consumers/export.md"
ENVIRONMENTS = Path(os.environ["TRAINERS"])
SAMPLES = 40
"""How many of the sample traces are read: trainers take minutes for all."""
FORMS = {"text": (), "object": ("--arguments", "object"), "tail": ("--keep-tail",)}
READERS = {
    "TRL": ("trl", "trl_sft.py"),
    "LLaMA-Factory": ("llamafactory", "llama_factory.py"),
    "ms-swift": ("swift", "ms_swift.py"),
    "Axolotl": ("axolotl", "axolotl_chat.py"),
    "mistral-common": ("readers", "mistral.py"),
}
NOT_LEARNT = {"mistral-common"}
"""The readers that check messages, and do not choose what is learnt."""


pytestmark = pytest.mark.timeout(3600)  # a trainer takes half a minute to start


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("trainers")


@pytest.fixture(scope="module")
def datasets(place):
    """The folders of datasets of samples and of the probes, by form."""
    (place / "worker.toml").write_text('embedding.backend = "lexical"\npolicy.threshold = 0.0\n')

    def kp_worker(*arguments):
        command = ["kp-worker", *arguments, "--config", "worker.toml"]
        return subprocess.run(command, cwd=place, check=True, capture_output=True).stdout

    for name in ("traces", "session"):
        done = subprocess.run(["kp-worker", "sample", name], check=True, capture_output=True)
        (place / f"{name}.jsonl").write_bytes(b"".join(done.stdout.splitlines(keepends=True)[:SAMPLES]))
    done = subprocess.run(["kp-worker", "convert", place / "session.jsonl"], check=True, capture_output=True)
    (place / "converted.jsonl").write_bytes(done.stdout)
    files = ("traces.jsonl", "converted.jsonl", str(HERE / "probes.jsonl"))
    (place / "scored.jsonl").write_bytes(kp_worker("score", "--traces", *files))
    options = ("--also", "messages", "--weights", "--shares", "0", "0", "--not-cleaned")
    for form, more in FORMS.items():
        kp_worker("export", form, "scored.jsonl", *options, *more)
    return {form: place / form for form in FORMS}


@pytest.fixture(scope="module")
def model(place):
    run(place, "trl", "model.py", place / "model")
    return place / "model"


def run(place, environment, script, *arguments):
    """Return what a reader prints in its last line."""
    python = ENVIRONMENTS / environment / "bin/python"
    offline = {
        "HF_HOME": str(place / f"cache-{environment}"),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [python, HERE / "readers" / script, *arguments]
    done = subprocess.run(
        command, cwd=place, env=os.environ | offline, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


def outcome(text):
    """Return what became of the call of the first probe: it has a null, a date and a list of objects."""
    if text.startswith("raises"):
        return "raises"
    if "4711" not in text:
        return "leaves it out"
    if '\\"seats' in text.replace(
        '"arguments":"{\\"seats', ""
    ):  # the members of a request are text in any case
        return "quotes twice"
    if "{{" in text:
        return "braces twice"
    return "right" if re.search(r"until.{0,40}(null|None)", text, re.DOTALL) else "drops null"


def write_table(name, lines):
    """Write a table to the page; the test fails if that changes it."""
    before, text = PAGE.read_text(), "\n".join(lines)
    part = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    after, count = part.subn(lambda found: f"{found[1]}{text}\n{found[2]}", before)
    PAGE.write_text(after)
    assert (count, after) == (1, before), f"{PAGE} has another table now; look at the difference"


def test_what_templates_make_of_a_call(place):
    printed = run(place, "trl", "trl_templates.py")
    groups = defaultdict(list)
    for name, texts in printed["texts"].items():
        if not name.endswith("_training"):
            groups[outcome(texts["text"]), outcome(texts["object"])].append(name)
    lines = ["| templates | JSON text | an object |", "|---|---|---|"]
    for (text, given), names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        lines.append(f"| {len(names)}: {', '.join(f'`{name}`' for name in names)} | {text} | {given} |")
    write_table("templates", [f"TRL {printed['version']}:", "", *lines])


def test_what_readers_keep_and_learn(place, datasets, model):
    total = len((place / "scored.jsonl").read_text().splitlines())
    heads = ("call as text", "as an object", "message of weight 0", "thought")
    first = f"| reader | of {total} rows | with `--keep-tail` |"
    lines = [f"{first} {' | '.join(heads)} |", "|---|---|---|---|---|---|---|"]
    folders = [datasets[form] / "messages" for form in FORMS]
    for name, (environment, script) in READERS.items():
        printed = run(place, environment, script, model, *folders)
        lines.append(f"| {name} {printed['version']} | {' | '.join(cells(name, printed['read']))} |")
    write_table("readers", lines)


def test_what_trainers_of_preferences_learn(place, datasets, model):
    """Each token of a run counts, also of what its tools answered: so no export makes pairs for them."""
    printed = run(place, "trl", "trl_preferences.py", model, datasets["object"] / "messages")
    lines = ["| trainer | rows | call | answer of a tool |", "|---|---|---|---|"]
    for name, read in printed["read"].items():
        answer = "learnt" if any("no such room" in text for text in read) else "not learnt"
        call = outcome(probe(read, "4711"))
        lines.append(f"| {name} of TRL {printed['version']} | {len(read)} | {call} | {answer} |")
    write_table("preferences", lines)


def cells(name, read):
    for form in ("text", "tail"):
        yield str(len(read[form]))
    for form in ("text", "object"):
        yield outcome(probe(read[form], "4711"))
    if name in NOT_LEARNT:
        yield "not read"
    else:
        yield "learnt" if probe(read["text"], "8822") else "not learnt"
    yield "kept" if "digit of 4733" in probe(read["text"], "It is odd.") else "left out"


def probe(read, mark):
    """Return the text with a mark; an error stands for all texts."""
    if isinstance(read, str):
        return f"raises {read}"
    return next((text for text in read if mark in text), "")


def test_duckdb_reads_lines_as_it_is_told(place, datasets):
    paths = (datasets["object"] / "messages").rglob("*.jsonl")
    written = {row["id"]: row for path in paths for row in map(json.loads, path.read_text().splitlines())}
    rows = run(place, "readers", "duckdb_lines.py", datasets["object"] / "messages")
    assert {row["id"] for row in rows} == {*written}
    for row in rows:
        for name in ("messages", "tools"):
            assert [*map(json.loads, row[name] or ())] == written[row["id"]].get(name, [])
