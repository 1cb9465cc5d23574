"""The redaction function of a worker, tried before one starts."""

from __future__ import annotations

import pytest

from knowledgepulse_worker.errors import SettingsError
from knowledgepulse_worker.tools.common.redaction_trial import try_redaction

FUNCTIONS = """
import time

def keeps(trace):
    return trace

def drops_the_score(trace):
    del trace["metadata"]["quality_score"]
    return trace

def returns_a_text(trace):
    return "redacted"

def raises(trace):
    return trace["no such member"]

def waits(trace):
    time.sleep(3600)
"""


@pytest.fixture(autouse=True)
def functions(tmp_path, monkeypatch):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize("name", ["functions:keeps", "knowledgepulse_worker.redaction.sdk:clean"])
async def test_a_function_that_returns_a_trace_passes(name):
    await try_redaction(name, 5.0)


@pytest.mark.parametrize(
    ("name", "limit", "problem"),
    [
        ("drops_the_score", 5.0, "invalid: metadata.quality_score is missing"),
        ("returns_a_text", 5.0, "invalid: "),
        ("raises", 5.0, "raised: KeyError"),
        ("waits", 0.2, "timeout"),
    ],
)
async def test_a_function_that_makes_no_copy_is_an_error_that_says_why(name, limit, problem):
    with pytest.raises(SettingsError) as raised:
        await try_redaction(f"functions:{name}", limit)
    made = f"redaction.function: functions:{name}: made no copy of a harmless trace: {problem}"
    assert str(raised.value).startswith(made)
