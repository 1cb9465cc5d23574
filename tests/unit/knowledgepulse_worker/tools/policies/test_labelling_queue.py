"""The labelling queue."""

import numpy as np
import pytest

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.advice import usual_lengths
from knowledgepulse_worker.tools.policies.labelling_queue import labelling_queue
from knowledgepulse_worker.tools.policies.labels import Label

POLICY = Policy(threshold=0.5)


def ids(candidates):
    return [one.record.id for one in candidates]


def at(score, name, domain="default"):
    """Return a trace with this score that is not a near copy."""
    return {"dimensions": (score,) * 4, "domain": domain, "id": name}


COPY = {"dimensions": (1, 0.01, 1, 0.5), "id": "copy", "nearest": "original"}
CASES = {
    "closest to the threshold": (
        *([at(score, f"{score}") for score in (0.1, 0.9, 0.45, 0.56, 0.5)], []),
        (["0.5", "0.45", "0.56"],),
    ),
    "not labelled": ([at(0.5, "a"), at(0.6, "b")], ["a"], (["b"],)),
    "domains in turns, fewest labels first": (
        [at(0.5 + n / 100, f"{domain}{n}", domain) for domain in ("code", "finance") for n in range(2)],
        *(["code0"], (["finance0", "code1", "finance1"],)),
    ),
    "one of near copies": (
        *([COPY, at(0.55, "original"), at(0.9, "other")], []),
        (["copy", "other"], ["original", "other"]),
    ),
    "no copy of a labelled one": (
        *([COPY, at(0.55, "original"), at(0.9, "other")], ["original"]),
        (["other"],),
    ),
    "each once": ([at(0.5, "a"), at(0.6, "a")], [], (["a"],)),
}


@pytest.mark.parametrize(("traces", "labelled", "queues"), CASES.values(), ids=CASES)
def test_which_traces_come_first(make_record, traces, labelled, queues):
    labels = {name: Label(name, keep=True) for name in labelled}

    assert ids(labelling_queue([make_record(**one) for one in traces], labels, POLICY, 3)) in queues


def test_traces_whose_decision_fitted_weights_change_come_first(make_record):
    """Tool diversity is what the labels say; the policy in force weighs novelty most."""
    rng = np.random.default_rng(0)
    labelled = [make_record((0.5, *rng.random(2), 0.5), id=f"l{n}") for n in range(60)]
    labels = {one.id: Label(one.id, keep=one.score.tool_diversity > 0.5) for one in labelled}
    novel, diverse = (
        make_record((0.5, *pair, 0.5), id=name) for pair, name in (((1, 0.1), "n"), ((0.1, 1), "d"))
    )
    near = make_record((0.5, 0.5, 0.5, 0.5), id="near")

    found = labelling_queue([near, *labelled, novel, diverse], labels, POLICY, 3)

    assert {*ids(found)[:2]} == {"n", "d"}
    assert min(found[0].change, found[1].change) >= 0.9 > found[2].change
    assert labelling_queue([near, *labelled, novel, diverse], labels, POLICY, 3) == found


def test_each_has_what_one_needs_to_judge_it(make_record, make_content):
    records = [
        make_record(**at(0.5, f"{n}"), content=make_content(length=2 + 8 * (n == 0), failed=0.5))
        for n in range(3)
    ]

    first = labelling_queue(records, {}, POLICY, 1)[0].as_dict(usual_lengths(records))

    assert first["change"] is None
    assert (first["objective"], first["steps"], first["result"]) == ("Do it", ("thought: First",), "Done")
    assert first["advice"] == ["5.0 times as long as usual", "50% of the calls failed"]
