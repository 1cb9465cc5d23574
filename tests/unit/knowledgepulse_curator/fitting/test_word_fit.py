"""Words beside facts are fitted if they help on tasks not seen, and refused if they give the label away."""

import tomllib
from base64 import b64encode
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy.special import expit

from knowledgepulse_curator.fitting.fit import fit
from knowledgepulse_curator.fitting.fit_report import fit_tables, fitted_toml
from knowledgepulse_curator.fitting.permutations import level
from knowledgepulse_curator.fitting.word_fit import (
    MIN_GROUPS_OF_NAMES,
    MIN_TRACES_OF_EACH_KIND,
    TraceWords,
)
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_worker.policy import BUCKETS, Policy, Words
from knowledgepulse_worker.scoring import Content, NoFactsError, learned_value, task_of
from knowledgepulse_worker.scoring.words import buckets_of, hashes_of
from knowledgepulse_worker.tools.policies.policy_output import print_policy

pytestmark = pytest.mark.usefixtures("few_permutations")

WORDS = ["please", "order", "cancel", "booking", "refund", "gift", "card", "flight", "seat", "bag", "name"]


@pytest.fixture(scope="module")
def planted(make_record, make_counts):
    """Return records and labels, which depend on the repeated calls and on the word `refund`."""

    def make(traces=300, words_of=lambda drawn, kept, task: drawn, steep=2.0, groups=100):
        rng = np.random.default_rng(0)
        records, labels = [], {}
        for number in range(traces):
            calls = int(rng.integers(4, 12))
            repeated = int(rng.integers(0, calls))
            drawn = [word for word in WORDS if rng.random() < 0.5]
            odds = 3 * (0.45 - repeated / calls) + steep * (1 if "refund" in drawn else -1)
            name, kept, task = f"kp:trace:{number}", bool(rng.random() < expit(odds)), number % groups
            words = " ".join(words_of(drawn, kept, task))
            counts = msgspec.structs.replace(make_counts(calls, repeated), words=words)
            records.append(make_record(tuple(rng.random(4)), id=name, counts=counts))
            labels[name] = Label(name, keep=kept, source="ann", group=task)
        return records, labels

    return make


def fitted(records, labels, **options):
    found = fit(records, labels, Policy(), today="2026-11-26", words=True, **options)
    return found, *found.domains.values()


def report(found):
    return " ".join(str(line) for line in fit_tables(found) if isinstance(line, str))


def weight_of(words, name):
    at = buckets_of(hashes_of([name.encode()], 1), BUCKETS)[0]
    return int(np.frombuffer(words.table, np.int8)[at])


@pytest.fixture(scope="module")
def usual(planted):
    """Return what is fitted to the usual records and labels."""
    return fitted(*planted())


@pytest.mark.slow
def test_words_that_help_on_tasks_not_seen_are_in_the_proposed_policy(usual, capsys):
    found, domain = usual

    assert domain.words.left_out == ""
    assert domain.words.gain.low > 0.05
    assert domain.outcome == "supported"
    words = domain.learned.words
    assert weight_of(words, "refund") == 127
    assert next(iter(words.strongest.values())).startswith("refund")
    written = Policy.model_validate(tomllib.loads(fitted_toml(found))["policy"])
    assert written == found.proposed
    assert written.profile("default").learned.words == words
    assert "words on tasks not seen, in folds of whole groups: AUC +0." in report(found)
    print_policy(written, "")
    assert "refund" in capsys.readouterr().out


@pytest.mark.slow
def test_the_value_in_the_policy_is_the_one_that_was_judged(planted):
    """Scoring sums the words as the regression does, up to the bytes that the weights are written in."""
    records, labels = planted(traces=1000)
    found, _ = fitted(records, labels)
    profile = found.proposed.profile("default")

    values = np.array([learned_value(profile, each.score.dimensions, each.counts) for each in records])

    kept = np.array([labels[each.id].keep for each in records])
    for low, high in ((0, 0.3), (0.3, 0.7), (0.7, 1)):
        at = (values >= low) & (values < high)
        assert kept[at].mean() == pytest.approx(values[at].mean(), abs=0.08)


def test_words_need_enough_traces_of_the_rarer_kind(planted):
    records, labels = planted(traces=2 * MIN_TRACES_OF_EACH_KIND - 1, groups=30)

    found, domain = fitted(records, labels)

    assert domain.words.left_out.startswith("they need 50 traces of each kind, and of one there are 4")
    assert domain.learned.words is None
    assert "words are left out: they need 50 traces of each kind" in report(found)


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_words_need_to_know_the_tasks(planted, named):
    """Equal objectives tell them, similar words do not: words would recognise the other runs of a task."""
    records, labels = planted()
    labels = {name: msgspec.structs.replace(label, group=None) for name, label in labels.items()}
    for number, record in enumerate(records):
        task = f"task {number % 100}" if named else f"{number}"
        content = Content(task, (), "Done", task=task_of(task))
        records[number] = replace(record, content=content)

    found, domain = fitted(records, labels)

    assert (domain.words.left_out == "") is named
    told = "words are left out: the task of 300 of 300 traces is not known, and words recognise tasks"
    assert (told in report(found)) is not named


@pytest.mark.parametrize("tell", [["passed"], ["修理"], ["p4ssed", "x"]])
def test_a_word_that_gives_the_label_away_is_refused(planted, usual, tell):
    records, labels = planted(words_of=lambda drawn, kept, task: drawn + tell * kept)

    found, domain = fitted(records, labels)

    assert {*domain.words.leaks} == {*tell}
    assert domain.learned.words is None
    assert domain.learned.terms.keys() == usual[1].learned.terms.keys()
    assert f"the word {tell[0]} alone predicts the label (AUC 1.00" in report(found)
    assert "words are left out: they give the label away" in report(found)


def test_words_that_give_the_label_away_only_together_are_refused(planted):
    def words_of(drawn, kept, task):
        return [f"{'pass' if kept else 'fail'}{task % 4}"]

    _, domain = fitted(*planted(words_of=words_of))

    assert domain.words.leaks == {}
    assert domain.words.left_out == "they give the label away"


def test_words_are_tested_with_the_facts(planted):
    """Here the facts say nothing, and their test alone would refuse what the words say."""
    records, labels = planted(traces=200)
    for number, record in enumerate(records):
        kept = ("refund" in record.counts.words.split()) != (number % 5 == 0)
        labels[record.id] = msgspec.structs.replace(labels[record.id], keep=kept)

    _, domain = fitted(records, labels)
    (facts,) = fit(records, labels, Policy(), today="2026-11-26").domains.values()

    assert (domain.words.left_out, domain.outcome) == ("", "supported")
    assert domain.surprise >= level(domain.grouped) > facts.surprise


def test_words_that_add_nothing_are_left_out(planted):
    _, domain = fitted(*planted(words_of=lambda drawn, kept, task: ["same"]))

    assert domain.words.left_out == "they are not shown to order traces better than the facts alone"
    assert domain.learned.words is None
    assert domain.outcome == "supported" or domain.missing


def test_tasks_that_were_seen_are_told_apart_from_those_that_were_not(planted):
    """These labels depend on the task alone, whose name is a word."""
    records, labels = planted(words_of=lambda drawn, kept, task: [*drawn, f"task{task}"], groups=60)
    labels = {
        name: msgspec.structs.replace(label, keep=bool(np.random.default_rng(label.group).random() < 0.5))
        for name, label in labels.items()
    }

    found, domain = fitted(records, labels)

    assert domain.words.alone.high < 0.7
    assert domain.words.seen["facts and words"].value > 0.9
    assert domain.words.seen["the rate at which the task's other traces are kept"].value > 0.95
    assert "words on tasks seen, in folds of traces: AUC of facts alone" in report(found)
    assert found.proposed == Policy()


def test_a_word_of_few_tasks_is_not_kept_for_people(planted):
    """It may be a name, or a secret."""

    def words_of(drawn, kept, task):
        return drawn + [f"secret{task % 3}"] * (task < 3 * (MIN_GROUPS_OF_NAMES - 1))

    _, domain = fitted(*planted(words_of=words_of))

    assert "secret" not in " ".join(domain.learned.words.strongest.values())


def test_the_name_of_a_user_is_not_kept_for_people(planted):
    """It stood in paths such as /home/ann/notes, and a policy is read by all."""
    words = TraceWords(planted(words_of=lambda drawn, kept, task: ["home", "ann", *drawn])[0])
    hashed = Words(unit=0.1, mean=0, weights=b64encode(bytes([1] * BUCKETS)).decode())
    named = " ".join(words.strongest(hashed, np.arange(300)).strongest.values()).split()
    assert ("ann" in named, "home" in named, "refund" in named) == (False, True, True)


def test_traces_without_words_are_refused(planted):
    records, labels = planted()
    counts = msgspec.structs.replace(records[7].counts, words=None)
    records[7] = replace(records[7], counts=counts)

    with pytest.raises(NoFactsError, match="needs words that these traces lack"):
        fitted(records, labels)
