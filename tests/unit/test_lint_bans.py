"""The import bans bite wherever they must, and nowhere else.

Each folder's ``ruff.toml`` repeats the project's list without its own entries, so one is easily forgotten.
"""

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


def is_refused(source: str, path: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=concise", f"--stdin-filename={path}", "-"],
        input=source,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return "TID251" in done.stdout


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("schemas", set()),
        ("worker", set()),
        ("worker/scoring", set()),
        ("worker/tools", set()),
        ("worker/tools/assemble", set()),
        ("worker/lane", set()),
        ("worker/kafka", {"aiokafka"}),
        ("worker/testing", {"aiokafka"}),
        ("worker/stream", {"aiokafka", "faust", "mode"}),
        ("worker/embedding", {"openvino", "torch", "sentence_transformers"}),
        ("worker/tools/convert", {"opentelemetry"}),
        ("worker/observe", {"prometheus_client", "opentelemetry"}),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(folder, allowed):
    refused = {name for name in BANNED if is_refused(f"import {name}\n", f"{folder}/module.py")}

    assert refused == BANNED - allowed


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_an_import_escapes(form):
    assert is_refused(form.format("torch"), "worker/scoring/module.py")
