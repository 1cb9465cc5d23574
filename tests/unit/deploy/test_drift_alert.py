"""KpDrift on a simulated stream: real rules, a reference that the command would write, a real Prometheus."""

import json
import subprocess
from collections import defaultdict

import numpy as np
import pytest
import yaml

from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import Score, ScoredRecord
from knowledgepulse_worker.tools.policies.drift import reference_rules, window
from support.tools import tool

pytestmark = pytest.mark.integration  # of half a minute

STABLE, SHIFTED = 24, 12
"""Hours. The distance of the shift is 0.7, so 0.2 is reached after 24 h * 0.2 / 0.7 = 7 h."""

SHAPES = {"complexity": (4, 3), "novelty": (2, 5), "tool_diversity": (1, 1), "outcome_confidence": (6, 2)}
TRACES_AN_HOUR = 120


POLICY = Policy(threshold=0.6)


def scored(*dimensions):
    """Return a record with these dimensions; the score follows from the policy."""
    score = Score(0, *dimensions, (), "default", POLICY.threshold, None)
    return ScoredRecord("traces.jsonl:1", "kp:trace:1", "default", "network", "aggregated", True, 0.5, score)


@pytest.fixture(scope="module")
def simulated():
    """Return the accepted records, and by minute those of a stream with nights and a shift of novelty."""
    rng = np.random.default_rng(29)

    def draw(count, *, shifted=False):
        columns = [rng.beta(*SHAPES[name], count) for name in DIMENSIONS]
        if shifted:
            columns[DIMENSIONS.index("novelty")] = 1 - columns[DIMENSIONS.index("novelty")]
        return [scored(*values) for values in np.transpose(columns).tolist()]

    minutes = []
    for minute in range(60 * (STABLE + SHIFTED)):
        rate = TRACES_AN_HOUR / 60 * (1 + np.sin(2 * np.pi * minute / 1440))  # none at night
        minutes.append(draw(rng.poisson(rate), shifted=minute >= 60 * STABLE))
    return draw(1000), minutes


def buckets(minutes):
    """Return the workers' series, cumulative over time and over buckets."""
    series = defaultdict(lambda: np.zeros(len(minutes), int))
    for number, records in enumerate(minutes):
        for record in records:
            score = record.under(POLICY)
            observed = {f'kp_dimension_score_bucket{{dimension="{name}"': (name, 10) for name in DIMENSIONS}
            outcome = f'outcome="{score.decision}"'
            observed[f"kp_quality_score_bucket{{{outcome}"] = ("quality_score", 20)
            names = [f'kp_quality_score_count{{{outcome},domain="default"}}']
            for prefix, (name, steps) in observed.items():
                at = [step / steps for step in range(1, steps + 1) if getattr(score, name) <= step / steps]
                names += [f'{prefix},domain="default",le="{bound}"}}' for bound in (*at, "+Inf")]
            for name in names:
                series[name][number] += 1
    return {name: np.cumsum(counts).tolist() for name, counts in series.items()}


def test_a_stable_day_is_quiet_and_a_shift_of_one_dimension_fires_within_its_time(root, simulated, tmp_path):
    accepted, minutes = simulated
    (tmp_path / "reference.json").write_text(reference_rules(window(accepted, POLICY)))
    rules = yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_bytes())
    rules["groups"] = [group for group in rules["groups"] if group["name"] == "drift"]
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules))
    series = buckets(minutes)
    series[f'kp_policy_info{{policy="{POLICY.digest}"}}'] = [1] * len(minutes)
    others = "complexity|tool_diversity|outcome_confidence"
    labels = 'alertname="KpDrift",alertstate="firing",domain="default",severity="ticket",dimension="novelty"'
    quiet = [
        {"expr": 'ALERTS{alertname="KpDrift"}', "eval_time": f"{hour}h"} for hour in range(1, STABLE + 1)
    ]
    story = {
        "rule_files": ["alerts.yml", "reference.json"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": " ".join(map(str, values))} for name, values in series.items()
                ],
                "promql_expr_test": [
                    *quiet,
                    {
                        "expr": 'ALERTS{alertname="KpDrift",dimension="novelty",alertstate="firing"}',
                        "eval_time": f"{STABLE + SHIFTED - 1}h",
                        "exp_samples": [{"labels": f"ALERTS{{{labels}}}", "value": 1}],
                    },
                    {
                        "expr": f'ALERTS{{dimension=~"{others}"}}',
                        "eval_time": f"{STABLE + SHIFTED - 1}h",
                    },
                    {  # the score and the decision have values at all
                        "expr": 'count(kp:drift:distance1d{dimension=~"quality_score|decision"} < 0.2)',
                        "eval_time": f"{STABLE}h",
                        "exp_samples": [{"labels": "{}", "value": 2}],
                    },
                ],
            }
        ],
    }
    (tmp_path / "story.yml").write_text(json.dumps(story))

    command = [tool("promtool"), "test", "rules", tmp_path / "story.yml"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
