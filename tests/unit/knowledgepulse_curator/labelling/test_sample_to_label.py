"""The sample to label: random, without the labelled, of all domains in turns, and the same for everybody."""

import random

from knowledgepulse_curator.labelling.traces_to_label import sample_to_label
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_worker.policy import Policy


def test_domains_take_turns_until_one_is_exhausted(make_record):
    records = [make_record(id=f"kp:trace:{n}", domain="code" if n < 3 else "finance") for n in range(20)]

    sample = sample_to_label(records, {}, Policy(), 10)

    assert [record.task_domain for record in sample] == ["code", "finance"] * 3 + ["finance"] * 4


def test_labelled_traces_and_repeats_are_left_out(make_record):
    records = [make_record(id=f"kp:trace:{n % 10}") for n in range(20)]
    labels = {"kp:trace:3": Label("kp:trace:3", keep=True)}

    sample = sample_to_label(records, labels, Policy(), 100)

    assert sorted(record.id for record in sample) == [f"kp:trace:{n}" for n in range(10) if n != 3]


def test_the_sample_does_not_depend_on_the_order_or_the_score(make_record):
    """Labels of the best traces only would say nothing about the others."""
    records = [make_record((n / 200,) * 4, id=f"kp:trace:{n}") for n in range(200)]
    shuffled = random.Random(0).sample(records, 200)

    sample = sample_to_label(records, {}, Policy(), 100)

    assert sample == sample_to_label(shuffled, {}, Policy(), 100)
    assert 0.4 < sum(record.score.quality_score for record in sample) / 100 < 0.6


def test_more_traces_add_to_the_sample_and_do_not_shuffle_it(make_record):
    records = [make_record(id=f"kp:trace:{n}") for n in range(100)]

    before, after = (sample_to_label(scored, {}, Policy(), 100) for scored in (records[:60], records))

    assert [record for record in after if record in before] == before
