"""Make the weights of a prior from labelled corpora, and judge each corpus by the weights of the others.

    PYTHONPATH=tests python -m policies.prior --name code-prior-1 --domain code CORPUS... [--others CORPUS...]

Each CORPUS is a folder and a name without ending, of two files: NAME.scored, the output of ``kp-worker
score``, and NAME.labels.jsonl. Prints the prior as JSON; the figures go to the standard error.

Facts are standardised by each corpus's own traces, without labels, as ``kp-worker policy prior`` does with
the traces of a stream. All corpora weigh the same, and in each the traces worth keeping as much as the
others. A corpus is judged by weights that were fitted to the others, less the tasks that it has, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_curator.fitting.labelled_traces import matched
from knowledgepulse_curator.labels.labels import labels_of_files
from knowledgepulse_worker.policy import FACTS_VERSION
from knowledgepulse_worker.scoring import FACTS
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.estimates import estimates, with_interval
from knowledgepulse_worker.tools.policies.scored_files import read_files

DRAWS = 20


class Corpus:
    """The facts of labelled traces, not standardised, with their tasks as the labels' groups."""

    def __init__(self, path: Path) -> None:
        records = list(read_files([path.with_suffix(".scored")], Settings()))
        labels = {label.id: label for label in labels_of_files([path.with_suffix(".labels.jsonl")])}
        labelled = matched(records, labels, 0.5)
        values = logistic.values_of(labelled.records)
        self.name, self.kept, self.groups = path.name, labelled.kept, labelled.groups
        self.tasks = np.array([str(trace.label.group) for trace in labelled.traces])
        self.facts = np.column_stack([values[name] for name in FACTS])

    def standardised(self, at=slice(None)):
        """Return the facts by the mean and deviation of some traces; one that does not vary there is 0."""
        means, deviations = self.facts[at].mean(axis=0), self.facts[at].std(axis=0)
        deviations[deviations < 1e-9] = np.inf
        return np.clip((self.facts - means) / deviations, -logistic.MAX_DEVIATIONS, logistic.MAX_DEVIATIONS)


def regression(corpora, without=()):
    """Return the weights of the facts, fitted to corpora without some tasks, shape (facts,)."""
    columns, kept, weights = [], [], []
    for corpus in corpora:
        at = ~np.isin(corpus.tasks, [*without])
        if min(corpus.kept[at].sum(), (~corpus.kept[at]).sum()) < 10:
            continue
        mine = corpus.kept[at]
        columns.append(corpus.standardised()[at])
        kept.append(mine)
        weights.append(100 / np.where(mine, mine.sum(), (~mine).sum()))
    model = LogisticRegression(C=logistic.REGULARISATION, max_iter=1000)
    return model.fit(np.vstack(columns), np.hstack(kept), np.hstack(weights)).coef_[0]


def area(corpus, odds):
    (found,) = estimates(corpus.kept, [odds], corpus.groups)
    return found


def report(corpus, weights):
    """Write what weights are worth on a corpus, standardised by all its traces and by a few."""
    rng = np.random.default_rng(0)
    told = [f"{corpus.name}: AUC {with_interval(area(corpus, corpus.standardised() @ weights))}"]
    for number in (25, 50, 100):
        if number < len(corpus.kept):
            draws = [rng.choice(len(corpus.kept), number, replace=False) for _ in range(DRAWS)]
            odds = [corpus.standardised(at) @ weights for at in draws]
            found = [_plain(corpus.kept, drawn) for drawn in odds]
            told.append(f"by {number} traces {np.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})")
    sys.stderr.write(", ".join(told) + "\n")


def _plain(kept, odds):
    above = odds[kept][:, None] - odds[~kept]
    return ((above > 0) + (above == 0) / 2).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--domain", required=True)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--others", type=Path, nargs="*", default=[], help="only judged")
    given = parser.parse_args()
    corpora = [Corpus(path) for path in given.corpora]
    for corpus in corpora:
        others = [other for other in corpora if other is not corpus]
        report(corpus, regression(others, {*corpus.tasks}))
    weights = regression(corpora)
    for path in given.others:
        report(Corpus(path), weights)
    prior = {
        "name": given.name,
        "domain": given.domain,
        "facts_version": FACTS_VERSION,
        "clip": logistic.MAX_DEVIATIONS,
        "weights": {
            name: logistic.rounded(weight)
            for name, weight in zip(FACTS, weights.tolist(), strict=True)
            if weight
        },
        "corpora": [corpus.name for corpus in corpora],
    }
    sys.stdout.write(json.dumps(prior, indent=1) + "\n")


if __name__ == "__main__":
    main()
