"""Recorded conversions: ``tests/data/conversions`` has a file for each format, with a case on each line.

A case has a descriptive ``name``, a ``document`` and the ``expected`` result. The documents were made with
the vendors' own types or are short forms of published files. To add a case, write a line without
``expected`` and run ``python -m support.conversions``, which fills in the result for you to check.
"""

import json
from pathlib import Path

from knowledgepulse_convert import INPUT_FORMATS, ConversionError, Options, convert

FOLDER = Path(__file__).parents[1] / "data" / "conversions"
SMALL = "a small document"
"""The name of the case that tests of all formats change and read again; a variant follows a colon."""
_UNIFORM = {
    *("visibility", "privacy_level", "quality_score", "validated_by"),
    *("ending", "success", "outcome_source"),
}
"""Members of ``metadata`` that are shown elsewhere, or that no source knows."""


def read_cases(file):
    """Return the cases of a file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def small_documents():
    """Return the small document of each format by the format's name, and the variant's if it has several."""
    return {
        file.stem + case["name"].removeprefix(SMALL).replace(":", ""): case["document"]
        for file in sorted(FOLDER.glob("*.jsonl"))
        for case in read_cases(file)
        if case["name"].startswith(SMALL)
    }


def outcomes_of(case):
    """Convert a case's document; return a run or an error for each conversion."""
    options = Options(**case.get("options", {}))
    document = case["document"]
    source = case.get("from", "auto")
    return [
        shown(conversion)
        for conversion in convert(iter(document) if case.get("lines") else document, source, options)
    ]


def shown(outcome):
    """Return the parts of a conversion as short texts."""
    if isinstance(outcome, ConversionError):
        return f"{type(outcome).__name__}: {outcome}".replace(", ".join(INPUT_FORMATS), "(all formats)")
    trace = outcome.trace
    metadata = trace.metadata.model_dump(mode="json", exclude_unset=True)
    losses = {
        path: [loss.values, loss.characters, *(["suspect"] if loss.suspect else [])]
        for path, loss in sorted(outcome.losses.items())
    }
    return {
        "task": trace.task.model_dump(mode="json", exclude_unset=True),
        "steps": [_step(step.model_dump(mode="json", exclude_unset=True)) for step in trace.steps],
        "outcome": [
            metadata["ending"],
            metadata["success"],
            metadata["outcome_source"],
            trace.outcome.confidence,
        ],
        "metadata": {name: value for name, value in metadata.items() if name not in _UNIFORM},
        "id": trace.id,
        "losses": losses,
    }


def _step(step):
    tool = step.get("tool", {})
    name = "/".join(tool[part] for part in ("mcp_server", "name") if tool.get(part))
    said = [
        json.dumps(step[part], ensure_ascii=False)
        for part in ("input", "latency_ms", "content")
        if part in step
    ]
    identity = [f"#{step['tool_call_id']}"] if "tool_call_id" in step else []
    return " ".join([step["type"], *([name] if name else []), *identity, *said])


def _record():
    for file in sorted(FOLDER.glob("*.jsonl")):
        cases = [
            case if "expected" in case else case | {"expected": outcomes_of(case)}
            for case in read_cases(file)
        ]
        file.write_text("".join(json.dumps(case) + "\n" for case in cases))


if __name__ == "__main__":
    _record()
