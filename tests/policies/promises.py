"""How often is a promise broken on tasks that were not labelled? And what is promised?

    PYTHONPATH=tests python -m policies.promises CORPUS... [--splits 200] [--labels 50 100 200]
        [--learned] [--plans]

Each CORPUS is a folder and a name without ending, of two files: NAME.scored, the output of ``kp-worker score
--embedder lexical --partitions 4``, and NAME.labels.jsonl. Its tasks are split into halves at random, again
and again. Labels are drawn from the runs of one half, and the largest share is promised, as ``policy evaluate
--promise`` does; or, with --learned, a value is fitted to them and ranked out of fold, as ``policy fit
--promise`` does. The promise is broken if less than P of what passes of the other half is worth keeping.
"""

from __future__ import annotations

import argparse
import sys
from math import ceil
from pathlib import Path

import numpy as np

from knowledgepulse_curator.fitting.fitted_promises import ranked_out_of_fold
from knowledgepulse_curator.fitting.labelled_traces import LabelledTraces, matched
from knowledgepulse_curator.fitting.learning import Wanted, learn
from knowledgepulse_curator.labels.labels import labels_of_files
from knowledgepulse_curator.promises.certificate import ERROR, SHARES, evidence, fewest, p_value, widest
from knowledgepulse_curator.promises.plan import FEWEST, LADDER, LOOKS
from knowledgepulse_curator.promises.sample import Stream
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.scored_files import read_files
from knowledgepulse_worker.tools.policies.tune import with_changes

LEASTS = tuple(round(0.05 * number, 2) for number in range(1, 20))
WANTED = Wanted("2026-11-29", 1.0, 1.0, "outcome_confidence", words=False)


class Corpus:
    """The labelled traces of a stream, with their width under the default policy."""

    def __init__(self, path):
        records = list(read_files([path.with_suffix(".scored")], Settings()))
        labels = {label.id: label for label in labels_of_files([path.with_suffix(".labels.jsonl")])}
        self.name, self.labelled = path.name, matched(records, labels, 0.5)
        self.policy = Policy(share=1.0)
        self.width = Stream(self.labelled.records, self.policy).width
        self.kept, self.tasks = self.labelled.kept, self.labelled.groups

    def halves(self, rng):
        """Return the runs of a random half of the tasks, and the others, as indices in a random order."""
        tasks = rng.permutation(self.tasks.max() + 1)
        inside = np.isin(self.tasks, tasks[: len(tasks) // 2])
        return rng.permutation(np.flatnonzero(inside)), np.flatnonzero(~inside)

    def by_fit(self, drawn):
        """Return the widths of drawn traces out of fold, and of all by a value fitted to them."""
        traces = [self.labelled.traces[at] for at in drawn]
        labelled = LabelledTraces(traces, self.labelled.records)
        if not labelled.has(10, 10):
            return None
        value = learn(labelled, labelled, WANTED).value
        stream = Stream(self.labelled.records, with_changes(self.policy, {"default": {"learned": value}}))
        return ranked_out_of_fold("default", labelled, stream, self.policy, WANTED)[0], stream.width


def study(corpus, number, splits, *, learned):
    """Return by P the draws, those with a promise, those that broke it, and the mean share."""
    rows = {least: [0, 0, 0, 0.0] for least in LEASTS}
    for seed in range(splits):
        rng = np.random.default_rng([seed, number])
        inside, outside = corpus.halves(rng)
        drawn = inside[:number]
        widths = corpus.by_fit(drawn) if learned else (corpus.width[drawn], corpus.width)
        for least, row in rows.items():
            row[0] += 1
            if widths is None:
                continue
            passes = np.array([widths[0] <= share for share in range(len(SHARES))])
            at, _ = widest(corpus.kept[drawn], corpus.tasks[drawn], passes, least)
            if at is not None:
                others = corpus.kept[outside][widths[1][outside] <= at]
                row[1] += 1
                row[2] += bool(others.mean() < least)
                row[3] += SHARES[at]
    return rows


def planned(corpus, inside, least, rng):
    """Return the index of the share that a plan promises, as ``policy label --promise`` asks, and its labels.

    None without a plan, as the best tenth is too small.
    """
    place, certified, asked = rng.random(len(corpus.kept)), None, set()
    most = max(FEWEST, LOOKS * fewest(least, error=ERROR / LOOKS))
    for share in LADDER:
        passing = inside[corpus.width[inside] <= SHARES.index(share)]
        if share == LADDER[0] and len(passing) < FEWEST:
            return None
        step = passing[np.argsort(place[passing])][:most]
        for look in range(1, LOOKS + 1):
            told = step[: ceil(len(step) * look / LOOKS)]
            asked |= {*told.tolist()}
            if p_value(evidence(corpus.kept[told], corpus.tasks[told]), least) <= ERROR / LOOKS:
                certified = SHARES.index(share)
                break
        else:
            break
    return certified, len(asked)


def study_plans(corpus, splits, write, *, learned):
    """Write by P how often a plan promises a share, and how often as many random labels do.

    ``learned``: whether to rank by a value that is fitted to 100 labels of the other half, whose tasks are
    then left out.
    """
    rows = {least: [0, 0, 0, 0, []] for least in LEASTS}
    formula = corpus.width
    for seed in range(splits):
        rng = np.random.default_rng([seed, 7])
        inside, outside = corpus.halves(rng)
        if learned:
            fitted = rng.permutation(outside)[:100]
            if (found := corpus.by_fit(fitted)) is None:
                continue
            corpus.width = found[1]
            outside = outside[~np.isin(corpus.tasks[outside], corpus.tasks[fitted])]
        for least, row in rows.items():
            if (found := planned(corpus, inside, least, np.random.default_rng([seed, 8]))) is None:
                continue
            at, number = found
            drawn = inside[:number]
            passes = np.array([corpus.width[drawn] <= share for share in range(len(SHARES))])
            row[0] += 1
            row[1] += at is not None
            row[2] += widest(corpus.kept[drawn], corpus.tasks[drawn], passes, least)[0] is not None
            row[3] += at is not None and corpus.kept[outside][corpus.width[outside] <= at].mean() < least
            row[4].append(number)
    corpus.width = formula
    for least, (draws, told, random, broken, labels) in rows.items():
        if told or random:
            row = (
                f"{told / draws:.0%}",
                f"{random / draws:.0%}",
                f"{broken / draws:.1%}",
                int(np.median(labels)),
            )
            write(f"| {corpus.name} | {least} | {draws} | {' | '.join(map(str, row))} |\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--learned", action="store_true")
    parser.add_argument("--plans", action="store_true", help="labels that a plan asks for")
    given = parser.parse_args()
    write = sys.stdout.write
    if given.plans:
        columns = ("corpus", "P", "draws", "promised", "by random labels", "broken", "labels (median)")
        write(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n")
        for path in given.corpora:
            study_plans(Corpus(path), given.splits, write, learned=given.learned)
            sys.stdout.flush()
        return
    columns = ("corpus", "kept of all", "labels", "P", "draws", "promised", "broken", "mean share promised")
    write(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n")
    for path in given.corpora:
        corpus = Corpus(path)
        half = len(corpus.kept) / 2
        for number in (number for number in given.labels if number <= 0.8 * half):
            for least, (draws, promised, broken, shares) in study(
                corpus, number, given.splits, learned=given.learned
            ).items():
                if promised:
                    write(
                        f"| {corpus.name} | {corpus.kept.mean():.2f} | {number} | {least} | {draws} | "
                        f"{promised / draws:.0%} | {broken / draws:.1%} | {shares / promised:.2f} |\n"
                    )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
