"""Learned values are fitted to labels, and proposed only if the labels support them."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.fitting.fit import fit
from knowledgepulse_curator.fitting.fit_report import fit_tables, fitted_toml
from knowledgepulse_curator.fitting.labelled_traces import OUTCOME_DIMENSION, held_scores, matched
from knowledgepulse_curator.fitting.permutations import PERMUTATION_LEVEL
from knowledgepulse_curator.fitting.plots import plot_fit
from knowledgepulse_curator.labels.fitted_traces import fitted_to
from knowledgepulse_curator.labels.labels import MIN_SUPPORT, Label
from knowledgepulse_worker.policy import LearnedValue, Policy
from knowledgepulse_worker.scoring import Content, NoFactsError, learned_value, scores_under
from knowledgepulse_worker.tools.policies.tune import tune
from knowledgepulse_worker.tools.terminal.reports import plain

TODAY = "2026-11-26"

pytestmark = pytest.mark.usefixtures("few_permutations")


@pytest.fixture(scope="module")
def planted(make_record, make_counts):
    """Return records and labels, which depend on the share of repeated calls and on complexity."""

    def make(traces=300, steep=2.0, groups=None, seed=0, agents=1):
        rng = np.random.default_rng(seed)
        records, labels = [], {}
        for number in range(traces):
            calls = int(rng.integers(4, 12))
            repeated = int(rng.integers(0, calls))
            dimensions = tuple(rng.random(4))
            odds = steep * (3 * (0.45 - repeated / calls) + 2 * (0.5 - dimensions[0]))
            record = make_record(
                dimensions, id=f"kp:trace:{number}", counts=make_counts(calls, repeated),
                agent_id=f"agent {number % agents}",
            )  # fmt: skip
            group = number % groups if groups else None
            labels[record.id] = Label(
                record.id, keep=bool(rng.random() < expit(odds)), source="ann", group=group
            )
            records.append(record)
        return records, labels

    return make


def fitted(records, labels, policy=None, **options):
    return fit(records, labels, policy or Policy(), today=TODAY, **options)


def only(found):
    (domain,) = found.domains.values()
    return domain


def report(found):
    return " ".join(str(line) for line in fit_tables(found) if isinstance(line, str))


@pytest.fixture(scope="module")
def usual(planted):
    """Return the usual records and labels, and what is fitted to them."""
    records, labels = planted()
    return records, labels, fitted(records, labels)


def test_a_planted_signal_is_found_with_its_signs_and_proposed(planted):
    records, labels = planted()

    found = fitted(records, labels, target=0.2)

    domain = only(found)
    assert domain.outcome == "supported"
    assert domain.difference.low > 0
    weights = {name: term.weight for name, term in domain.learned.terms.items()}
    assert weights["repeated_share"] < 0 > weights["complexity"]
    assert {*sorted(weights, key=lambda name: -abs(weights[name]))[:2]} == {"repeated_share", "complexity"}
    written = Policy.model_validate(tomllib.loads(fitted_toml(found))["policy"])
    assert written == found.proposed
    assert written.profile("default").learned.terms == domain.learned.terms
    passing = sum(score.decision == "contribute" for score in scores_under(records, written))
    assert passing / len(records) == pytest.approx(0.2, abs=0.04)
    assert written.profile("default").share == 0.2
    assert tune(records, written, 0.2, by_threshold=True).proposed == written
    assert report(found).startswith("fit: default: the labels support the learned value")
    json.dumps(plain(found))


def test_the_policy_records_what_it_was_fitted_to(planted):
    records, labels = planted(groups=60, agents=3)

    learned = only(fitted(records, labels)).learned
    origin = learned.fitted

    assert (origin.on, origin.traces, origin.groups, origin.labels) == (TODAY, 300, 60, {"ann": 300})
    assert {*origin.agents} == {"agent 0", "agent 1", "agent 2"}
    assert origin.auc[1] < origin.auc[0] < origin.auc[2]
    assert origin.within_groups is not None
    assert origin.new_agents is not None
    assert fitted_to(Policy(domains={"default": {"learned": learned}}), records).all()


def test_the_value_in_the_policy_is_the_one_that_was_judged(usual):
    """Scoring clips and sums as the regression does."""
    records, _, found = usual
    learned = only(found).learned

    odds = logistic.log_odds(learned, logistic.values_of(records))

    profile = Policy(domains={"default": {"learned": learned}}).profile("default")
    found = [learned_value(profile, record.score.dimensions, record.counts) for record in records]
    assert found == pytest.approx(expit(odds))


def test_groups_of_one_kind_say_nothing_about_runs_of_one_task(planted):
    """There is no pair within a group, so its AUC is unknown and not a number that JSON has no word for."""
    records, labels = planted(groups=60)
    first = {label.group: label.keep for label in reversed(labels.values())}
    labels = {name: Label(name, keep=first[label.group], group=label.group) for name, label in labels.items()}

    found = fitted(records, labels)

    assert only(found).appraisals["fitted"].within is None
    assert only(found).learned.fitted.within_groups is None
    assert "it is not shown to tell good from bad runs of the same task" in report(found)


@pytest.mark.slow
def test_probabilities_are_calibrated(planted):
    """Of traces that were not fitted to."""
    found = only(fitted(*planted(traces=1500)))

    assert len(found.reliability) == 10
    for probability, kept in found.reliability:
        assert kept == pytest.approx(probability, abs=0.12)


def test_permuted_labels_are_not_proposed(planted):
    """None may be: test_permutations has the rate of the gate, evidence.md that on public corpora."""
    records, labels = planted(traces=150, groups=50)
    rng = np.random.default_rng(1)
    for _ in range(4):
        keeps = rng.permutation([label.keep for label in labels.values()]).tolist()
        pairs = zip(labels.items(), keeps, strict=True)
        permuted = {name: Label(name, keep=keep, group=label.group) for (name, label), keep in pairs}
        found = fitted(records, permuted)
        assert only(found).outcome == "not supported"
        assert only(found).surprise < PERMUTATION_LEVEL
        assert found.proposed == Policy()
        assert "no proposal, for want of an AUC that is surely above chance" in report(found)


@pytest.mark.parametrize(("traces", "groups"), [(2 * MIN_SUPPORT - 1, None), (300, 9)])
def test_with_too_few_labels_it_says_what_is_missing(planted, traces, groups):
    found = fitted(*planted(traces=traces, groups=groups))

    assert only(found).outcome == "too few labels"
    assert found.proposed == Policy()
    assert "at least 10 of each kind and 10 groups are needed" in report(found)


def test_a_value_that_is_already_in_force_is_not_proposed_again(usual):
    """On the labels that it was fitted to, its figures flatter."""
    records, labels, found = usual
    proposed = found.proposed

    again = fitted(records, labels, proposed)

    assert only(again).outcome == "not supported"
    assert "no proposal, for want of labels that the policy in force was not fitted to: AUC" in report(again)
    assert "in force" not in only(again).appraisals
    assert again.proposed == proposed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turned", "said"), [(False, "for want of a gain above 0 in"), (True, "the labels support")]
)
def test_a_policy_in_force_is_judged_by_the_labels_since_its_fit(planted, turned, said):
    """Before, it would seem better than it is; here, the later labels say the opposite of the former ones."""
    records, labels = planted(traces=600)
    first = {record.id: labels[record.id] for record in records[:100]}
    if turned:
        first = {name: Label(name, keep=not label.keep) for name, label in first.items()}
    proposed = fitted(records, first).proposed

    found = fitted(records, first | dict([*labels.items()][100:]), proposed)

    assert only(found).since == 500
    assert said in report(found)
    assert only(found).difference.value == pytest.approx(0.5 if turned else 0, abs=0.35)


@pytest.mark.slow
def test_people_check_a_value_that_was_fitted_to_a_judges_labels_too(planted):
    """Each figure is of people's labels, of traces that the value was not fitted to."""
    records, labels = planted(traces=300)
    judged = {name: Label(name, keep=label.keep, source="judge:m:1") for name, label in labels.items()}
    people = dict([*labels.items()][:120])

    found = only(fitted(records, judged | people))

    assert found.outcome == "supported"
    assert (found.traces, found.judges) == (120, 180)
    assert found.learned.fitted.labels == {"judge:m:1": 180, "ann": 120}
    alone = only(fitted(records, people))
    assert found.appraisals["fitted"].auc.value > alone.appraisals["fitted"].auc.value - 0.05
    turned = {name: Label(name, keep=not label.keep, source="judge:m:1") for name, label in labels.items()}
    assert only(fitted(records, turned | people)).outcome == "not supported"


def test_traces_worth_keeping_are_told_from_those_without_a_label(planted):
    """If nobody labelled one to drop."""
    records, labels = planted(traces=400)
    up = [name for name, label in labels.items() if label.keep][:80]

    found = fitted(records, {name: labels[name] for name in up})

    domain = only(found)
    assert domain.outcome == "supported"
    assert (domain.traces, domain.kept, domain.rest, found.unmatched) == (400, 80, 320, 0)
    assert "AUC 0." in report(found)
    assert "against traces without a label" in report(found)
    weights = {name: term.weight for name, term in domain.learned.terms.items()}
    assert weights["repeated_share"] < 0 > weights["complexity"]
    assert found.proposed.profile("default").share == 0.1


def test_labels_to_keep_say_nothing_if_all_traces_have_one(planted):
    records, labels = planted()
    up = {name: Label(name, keep=True) for name in labels}

    assert {domain.outcome for domain in fitted(records, up).domains.values()} == {"too few labels"}


def test_outcome_confidence_is_neither_fitted_nor_counted_unless_asked(draw, make_counts):
    """Here it is the label itself."""

    def one(rng, _):
        success = bool(rng.random() < 0.5)
        others = {"success": success, "counts": make_counts(int(rng.integers(1, 9)))}
        return (*rng.random(3), 0.8 if success else 0.24), success, others

    records, labels = draw(200, 2, one)

    constant, asked = (fitted(records, labels, outcome_confidence=number) for number in (False, True))

    assert only(constant).outcome == "not supported"
    assert "outcome_confidence" not in only(constant).learned.terms
    assert [*only(asked).leaks] == ["outcome_confidence"]
    assert "100% of the labels equal metadata.success" in report(asked)
    assert "outcome confidence alone predicts the label (AUC 1.00)" in report(asked)


def test_an_environment_that_ends_at_success_is_named(draw, make_counts):
    """Then the length is the label: a run of nine calls failed."""

    def one(rng, _):
        calls = int(rng.integers(1, 10))
        return tuple(rng.random(4)), (calls < 6) != (rng.random() < 0.05), {"counts": make_counts(calls)}

    told = report(fitted(*draw(200, 3, one)))

    assert "length alone nearly is the label" in told
    assert "against the length alone, so no better than preferring short runs; kept of the best" in told


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ('observation: {{"reward": {kept:d}.0}}', True),
        ("result: Resolved = {kept!s}", True),
        ("observation: score: {other}", False),
        ("observation: no rewards here", False),
    ],
)
def test_an_outcome_in_the_text_that_predicts_the_label_is_named(planted, text, warned):
    records, labels = planted(traces=120)
    records = [
        replace(
            record,
            content=Content("Do it", (text.format(kept=labels[record.id].keep, other=number % 7),), "Done"),
        )
        for number, record in enumerate(records)
    ]

    assert ("which predicts the label: remove it first" in report(fitted(records, labels))) is warned


def test_a_value_that_is_worse_on_other_agents_is_warned_about(planted):
    records, labels = planted(agents=2)
    turned = {
        record.id: Label(record.id, keep=not labels[record.id].keep, source="ann")
        for record in records
        if record.agent_id == "agent 1"
    }

    assert "on other agents, it is worse than chance" in report(fitted(records, labels | turned))


def test_a_better_order_with_worse_best_traces_is_not_proposed(draw, make_counts):
    """The traces that pass are the best ones: an AUC alone does not see that fewer of them are kept."""

    def one(rng, number):
        best = number % 16 == 0
        novelty = 0.95 + 0.05 * rng.random() if best else 0.8 * rng.random()
        counts = make_counts(int(rng.integers(1, 9)))
        keep = best or rng.random() < (0.8 if novelty < 0.4 else 0.1)
        return (0.5, novelty, 0.5, 0.5), keep, {"counts": counts}

    found = fitted(*draw(400, 5, one), target=0.05)

    domain = only(found)
    assert min(domain.difference.low, domain.appraisals["fitted"].auc.low - 0.53) > 0
    assert domain.best_difference.value < 0
    assert domain.outcome == "not supported"
    assert found.proposed == Policy()
    assert "for want of best traces as good as those under the policy in force: AUC" in report(found)


def test_an_agent_that_gives_the_label_is_named(draw, make_counts):
    def one(rng, number):
        agent = number % 2
        counts = make_counts(int(rng.integers(1, 9)) + 3 * agent)
        keep = bool(agent) != (rng.random() < 0.05)
        return tuple(rng.random(4)), keep, {"counts": counts, "agent_id": f"agent {agent}"}

    found = fitted(*draw(200, 4, one))

    assert "agent alone nearly is the label" in report(found)
    assert "fit again when the agents change" in report(found)
    assert only(found).new_agents.low < 0.5


def test_traces_without_counts_are_refused(planted, make_record):
    records, labels = planted()
    records[7] = make_record(id=records[7].id, counts=None)

    with pytest.raises(NoFactsError, match="score them again"):
        fitted(records, labels)


def test_the_same_labels_give_the_same_fit_in_any_order(planted):
    records, labels = planted(groups=50)
    backwards = dict(reversed(labels.items()))

    assert plain(fitted(records, labels)) == plain(fitted(records, backwards))


@pytest.mark.parametrize("groups", [np.arange(40) // 4, np.arange(53) % 17])
def test_a_group_is_in_one_fold(groups):
    """Else a value would be judged on the trials of tasks that it was fitted to."""
    folds = logistic.folds_of(groups)

    assert {*folds} == {*range(5)}
    assert all(len({*folds[groups == group]}) == 1 for group in groups)


def test_a_fold_without_two_kinds_in_the_others_says_nothing():
    kept = np.array([True, False, True, True])

    odds = logistic.out_of_fold({"steps": np.arange(4.0)}, kept, np.array([0, 0, 1, 1]))

    assert odds[:2].tolist() == [0, 0]


@pytest.mark.parametrize("column", [[0.0, 0.0, 1.3e-222, 0.0], [1e6, 1e6, 1e6, 1e6 + 1]])
def test_a_value_whose_deviation_is_no_more_than_rounding_is_constant(column):
    """The first deviation underflows to 0, and the division by it warned."""
    kept, values = (
        np.array([True, False, True, False]),
        {"characters": np.array(column), "asks": np.arange(4.0)},
    )

    assert [*logistic.learn(values, kept, 1.0).terms] == ["asks"]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1), st.booleans()), min_size=4, max_size=40))
def test_any_values_give_a_policy_that_can_be_loaded(rows):
    kept = np.array([row[2] for row in rows])
    if kept.all() or not kept.any():
        return
    values = {"characters": np.array([row[0] for row in rows]), "asks": np.array([row[1] for row in rows])}

    learned = logistic.learn(values, kept, 1.0)

    assert LearnedValue.model_validate(learned.model_dump()) == learned


def test_scores_with_outcome_confidence_held_do_not_depend_on_it(usual):
    records, labels, found = usual
    proposed = found.proposed
    labelled = matched(records, labels, 0.5)

    plain = held_scores(labelled, proposed, None)

    assert plain.tolist() == [record.under(proposed).quality_score for record in records]
    assert (
        held_scores(labelled, Policy(), OUTCOME_DIMENSION).std() < held_scores(labelled, Policy(), None).std()
    )


def test_the_plot_shows_aucs_and_reliability(planted):
    records, labels = planted(agents=2)

    figure = plot_fit(fitted(records, labels), records)

    left, right = figure.axes
    assert [yticklabel.get_text() for yticklabel in left.get_yticklabels()] == [
        "in force", "fitted", "length alone", "agent alone",
    ]  # fmt: skip
    assert right.get_title() == "reliability"
