"""The alert rules on states of a worker, from the states themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.staging import ROOT
from knowledgepulse_worker.verdict import State

RULES = ROOT / "deploy/prometheus/alerts.yml"
ALERTS = {
    "page": ("KpWorkerBlocked", "Traces of some partitions are not scored."),
    "ticket": ("KpWorkerImpaired", "Traces are scored, if by other workers, but not as they should be."),
}
"""The names of the alerts by severity, and what all of their states have in common."""

_PART = re.compile(r"(?<=  # generated: states\n).*?(?=  # end\n)", re.DOTALL)


def renewed(rules: str) -> str:
    """Return alert rules with those on states as the code has them now."""
    return _PART.sub(lambda _: "\n".join([*_rules(), ""]), rules)


def _rules() -> Iterator[str]:
    yield "  - name: states\n    rules:"
    for severity, (name, description) in ALERTS.items():
        states = [(state, state.alert) for state in State if state.alert and state.alert.severity == severity]
        lasting = [_lasts(state, alert.minutes) for state, alert in states]
        yield f"      - alert: {name}\n        expr: |\n          max by (group, instance, state) ("
        yield "            " + "\n            or ".join(lasting) + "\n          )"
        yield f"        labels:\n          severity: {severity}\n        annotations:\n          summary: >-"
        yield "            {{ $labels.instance }}:"
        for number, (state, alert) in enumerate(states):
            case = "else if" if number else "if"
            yield f'            {{{{- {case} eq $labels.state "{state}" }}}} {alert.summary}'
        yield "            {{- end }}"
        yield f"          description: {description} The status page and /readyz name the reason."
        yield '          runbook_url: "{{ $externalLabels.runbook }}#{{ $labels.state }}"'


def _lasts(state: State, minutes: int) -> str:
    """Return the expression for a state that has lasted: for nine tenths of the time, up to now.

    So neither a moment without the state nor a process that an orchestrator starts again begins it anew. The
    worker was there before, so that it is not taken for long at its first scrape.
    """
    series = f'kp_state{{state="{state}"}}'
    if not minutes:
        return f"{series} > 0"
    return f"avg_over_time({series}[{minutes}m]) > 0.9 and present_over_time({series}[10m] offset {minutes}m)"
