"""The import bans bite wherever they must, and nowhere else.

Each folder's ``ruff.toml`` repeats the project's list without its own entries, so one is easily forgotten.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {
    "aiokafka",
    "faust",
    "mode",
    "openvino",
    "opentelemetry",
    "prometheus_client",
    "sentence_transformers",
    "torch",
}
FORMS = ("import {}\n", "import {}.inner\n", "from {} import thing\n", "def lazily():\n    import {}\n")


def refused(source: str, path: str) -> set[int]:
    """Return the lines with a banned import, from 0."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=json", f"--stdin-filename={path}", "-"],
        input=source,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {one["location"]["row"] - 1 for one in json.loads(done.stdout) if one["code"] == "TID251"}


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("schemas/knowledgepulse_schemas", set()),
        ("worker/knowledgepulse_worker", set()),
        ("worker/knowledgepulse_worker/scoring", set()),
        ("worker/knowledgepulse_worker/tools", set()),
        ("worker/knowledgepulse_worker/tools/assemble", set()),
        ("worker/knowledgepulse_worker/lane", set()),
        ("worker/knowledgepulse_worker/kafka", {"aiokafka"}),
        ("worker/knowledgepulse_worker/stream", {"aiokafka", "faust", "mode"}),
        ("worker/knowledgepulse_worker/embedding", {"openvino", "torch", "sentence_transformers"}),
        ("worker/knowledgepulse_worker/tools/convert", {"opentelemetry"}),
        ("worker/knowledgepulse_worker/observe", {"prometheus_client", "opentelemetry"}),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(folder, allowed):
    lines = "".join(f"import {name}\n" for name in sorted(BANNED))

    assert {sorted(BANNED)[row] for row in refused(lines, f"{folder}/module.py")} == BANNED - allowed


def test_no_form_of_an_import_escapes():
    lines = "".join(form.format("torch") for form in FORMS)

    assert refused(lines, "worker/knowledgepulse_worker/scoring/module.py") == {0, 1, 2, 4}
