"""Tampered outputs, and the defects that an audit counts."""

import json

from msgspec.structs import replace


def score_of(output):
    return json.loads(dict(output.headers)["kp-score"])


def with_headers(output, **changed):
    """Return an output with some of the worker's headers replaced."""
    new = {name.replace("_", "-"): value for name, value in changed.items()}
    return replace(output, headers=tuple((name, new.get(name, value)) for name, value in output.headers))


def with_score(output, **changed):
    """Return an output with some fields of its kp-score replaced."""
    return with_headers(output, kp_score=json.dumps(score_of(output) | changed).encode())


def counts(report):
    """Return the defects and oddities in a report."""
    return {
        name: value
        for name, value in vars(report).items()
        if value and name not in ("partition", "records", "outputs", "novelty_exact")
    }
