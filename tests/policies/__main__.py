"""What `kp-worker policy fit`, `queue` and the advice are worth on labelled corpora; prints Markdown.

    PYTHONPATH=tests python -m policies FOLDER [fit controls features queue]

FOLDER holds the corpora of `tests/novelty/README.md`. Novelty is that of `lexical`, in one partition.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.content import texts_of
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.advice import FEATURES, usual_lengths
from knowledgepulse_worker.tools.policies.estimates import auc, estimates, signed, with_interval
from knowledgepulse_worker.tools.policies.fit import DomainFit, fit
from knowledgepulse_worker.tools.policies.labelled import Labelled, LabelledTrace, matched
from knowledgepulse_worker.tools.policies.labels import Labels, labels_of_files
from knowledgepulse_worker.tools.policies.queue import labelling_queue
from knowledgepulse_worker.tools.policies.scored_files import read_files
from knowledgepulse_worker.tools.policies.weights import fitted_weights, values_of

CHOICE = ("mint", "tau-airline", "intercode-bash")
REPORT = ("mint-others", "airline-agents", "intercode-sql", "hotpotqa", "livemcpbench")
POLICY = Policy()
TRIALS = 20
REFUSAL = re.compile(
    r"\bi(?:'m| am) (?:sorry|unable|not able)|\bi (?:cannot|can't|could not|couldn't)|\bunable to"
    r"|\bhuman agent",
    re.IGNORECASE,
)
CHECK = re.compile(r"\b(?:verif|check|confirm|test|assert|validat)", re.IGNORECASE)
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Corpus:
    name: str
    records: list[ScoredRecord]
    labels: Labels
    agents: dict[str, str]
    lines: dict[str, bytes]


def read(folder: Path, name: str) -> Corpus:
    settings = Settings(embedding={"backend": "lexical"}, limits={"trace_bytes": 10**8})
    file = folder / f"{name}.labels.jsonl"
    agents = {one["id"]: one.get("agent", "") for one in map(json.loads, file.read_text().splitlines())}
    records = list(read_files([folder / f"{name}.jsonl"], settings))
    lines = {json.loads(line)["id"]: line for line in (folder / f"{name}.jsonl").read_bytes().splitlines()}
    return Corpus(name, records, labels_of_files([file]), agents, lines)


def fitted(corpus: Corpus, labels: Labels | None = None, **options: bool) -> DomainFit:
    (one,) = fit(corpus.records, labels or corpus.labels, POLICY, **options).domains.values()
    return one


def row(*cells: object) -> None:
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    sys.stdout.flush()


def head(*names: str) -> None:
    sys.stdout.write("\n")
    row(*names)
    row(*("---" for _ in names))


def print_fits(corpora: list[Corpus]) -> None:
    head(
        "corpus", "kept of traces, groups", "weights", "C, N, D, O", "AUC", "best 10 %", "worth keeping",
        "groups / at random", "fitted - in force",
    )  # fmt: skip
    for corpus in corpora:
        one = fitted(corpus)
        for name, found in one.candidates.items():
            gain = found.point.coverage.gain if found.point.coverage else None
            row(
                corpus.name, f"{one.kept} of {one.traces}, {one.groups}", name,
                " ".join(f"{weight:g}" for weight in found.weights.values()), with_interval(found.auc),
                found.point.passing, with_interval(found.point.precision), with_interval(gain),
                f"{one.outcome}: {signed(one.difference)}" if name == "fitted" else "",
            )  # fmt: skip


def planted(corpus: Corpus, rng: np.random.Generator, weights: np.ndarray) -> Labels:
    """Return labels that depend on the weighted dimensions, with noise, and not on the trace otherwise."""
    values = values_of([one.score for one in corpus.records], hold=False) @ weights
    steep = 4 * (values - np.median(values)) / values.std()
    keep = rng.random(len(values)) < 1 / (1 + np.exp(-steep))
    return {
        one.id: replace(corpus.labels[one.id], keep=bool(kept), reward=None)
        for one, kept in zip(corpus.records, keep, strict=True)
        if one.id in corpus.labels
    }


def print_controls(corpora: list[Corpus]) -> None:
    head(
        "corpus",
        f"{TRIALS} permutations: supported, mean AUC",
        "planted: 0.1 0.6 0.3 beside 0.25",
        "found",
        "AUC",
    )
    for corpus in corpora:
        rng = np.random.default_rng(0)
        found = []
        for _ in range(TRIALS):
            rewards = rng.permutation([one.reward for one in corpus.labels.values()])
            pairs = zip(corpus.labels.items(), rewards, strict=True)
            found.append(
                fitted(corpus, {name: replace(one, reward=float(new)) for (name, one), new in pairs})
            )
        supported = sum(one.outcome == "supported" for one in found)
        mean = np.mean([one.candidates["fitted"].auc.value for one in found])
        truth = np.array([0.1, 0.6, 0.3, 0]) * 0.75 + [0, 0, 0, 0.25]
        one = fitted(corpus, planted(corpus, rng, truth))
        recovered = one.candidates["fitted"]
        row(
            corpus.name, f"{supported}, {mean:.2f}", " ".join(f"{weight:g}" for weight in truth.round(3)),
            " ".join(f"{weight:g}" for weight in recovered.weights.values()), with_interval(recovered.auc),
        )  # fmt: skip
    head("corpus", "outcome confidence", "agreement with success", "leaks", "AUC fitted", "outcome")
    for corpus in corpora:
        for asked in (False, True):
            one = fitted(corpus, outcome_confidence=asked)
            row(
                corpus.name, "fitted" if asked else "constant", f"{one.agreement:.2f}",
                ", ".join(one.leaks) or "-", with_interval(one.candidates["fitted"].auc), one.outcome,
            )  # fmt: skip


def others(line: bytes) -> dict[str, float]:
    """Return the features of a trace that did not hold, and are no advice."""
    _, steps, result, _ = texts_of(line)
    words = WORD.findall(" ".join(f"{one.content} {one.input} {one.output}" for one in steps).lower())
    return {
        "more recovered errors": sum(one.type == "error_recovery" for one in steps),
        "no refusal": -bool(REFUSAL.search(result)),
        "a final check": float(any(CHECK.search(f"{one.content} {one.input}") for one in steps[-4:])),
        "richer words": len({*words}) / math.sqrt(len(words)) if words else 0,
    }


def print_features(corpora: list[Corpus]) -> None:
    head("feature", "pairs", *(corpus.name for corpus in corpora))
    columns = []
    for corpus in corpora:
        labelled = matched(corpus.records, corpus.labels, 0.5)
        usual = usual_lengths(corpus.records)
        agents = np.unique([corpus.agents[one.label.id] for one in labelled.traces], return_inverse=True)[1]
        values: dict[str, list[float]] = defaultdict(list)
        for record in (one.record for one in labelled.traces):
            offered = {
                name: of(record.content.features, usual[record.task_domain]) for name, of in FEATURES.items()
            }
            for name, value in (offered | others(corpus.lines[record.id])).items():
                values[name].append(value)
        telling = {name: np.array(column, float) for name, column in values.items() if np.ptp(column)}
        pairs = [
            estimates(labelled.kept, [*telling.values()], labelled.groups, strata)
            for strata in (None, labelled.groups, agents)
        ]
        columns.append(dict(zip(telling, zip(*pairs, strict=True), strict=True)))
    for name in dict.fromkeys(name for lines in columns for name in lines):
        for number, pairs in enumerate(("all", "of a task", "of an agent")):
            row(
                name,
                pairs,
                *(with_interval(lines[name][number]) if name in lines else "-" for lines in columns),
            )


def print_queue(corpora: list[Corpus]) -> None:
    """Print the AUC on held-back tasks of weights fitted to so many labels."""
    counts = (20, 40, 60, 80, 120)
    head("corpus", "in force", "labels chosen", *counts)
    for corpus in corpora:
        labelled = matched(corpus.records, corpus.labels, 0.5).traces
        curves: dict[str, list[list[float]]] = {"by the queue": [], "at random": []}
        for trial in range(TRIALS):
            rng = np.random.default_rng(trial)
            groups = rng.permutation(sorted({one.group for one in labelled}))
            held = [one for one in labelled if one.group in groups[: len(groups) // 2]]
            pool = [one for one in labelled if one.group not in groups[: len(groups) // 2]]
            first = list(rng.permutation(len(pool))[: counts[0]])
            for how, curve in curves.items():
                chosen, drawn = [pool[one] for one in first], np.random.default_rng(trial)
                curve.append([])
                for count in counts:
                    chosen = more(chosen, pool, count, None if how == "by the queue" else drawn)
                    curve[-1].append(held_auc(chosen, held) if len(chosen) == count else np.nan)
        kept = Labelled(labelled).kept
        force = float(auc(kept, values_of([one.record.score for one in labelled], hold=True) @ START)[0])
        for how, curve in curves.items():
            row(corpus.name, f"{force:.3f}", how, *(f"{figure:.3f}" for figure in np.mean(curve, axis=0)))


START = np.array([weight for _, weight in POLICY.profile("default").weights])


def more(
    chosen: list[LabelledTrace], pool: list[LabelledTrace], count: int, rng: np.random.Generator | None
) -> list[LabelledTrace]:
    """Return chosen labels and more of a pool, at random or by the queue, 20 at a time."""
    while len(chosen) < count:
        known = {one.record.id for one in chosen}
        others = [one for one in pool if one.record.id not in known]
        if not others:
            break
        if rng is not None:
            ids = [others[at].record.id for at in rng.permutation(len(others))[:20]]
        else:
            labels = {one.record.id: one.label for one in chosen}
            queue = labelling_queue([one.record for one in pool], labels, POLICY, 20)
            ids = [one.record.id for one in queue]
        if not ids:
            break
        chosen = chosen + [one for one in others if one.record.id in set(ids)]
    return chosen


def held_auc(chosen: list[LabelledTrace], held: list[LabelledTrace]) -> float:
    kept = Labelled(chosen).kept
    values = values_of([one.record.score for one in [*chosen, *held]], hold=True)
    if kept.all() or not kept.any():
        return float(auc(Labelled(held).kept, values[len(chosen) :] @ START)[0])
    weights = fitted_weights(values[: len(chosen)], kept, START, hold=True)
    return float(auc(Labelled(held).kept, values[len(chosen) :] @ weights)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", default=["fit", "controls", "features", "queue"])
    arguments = parser.parse_args()
    corpora = [read(arguments.folder, name) for name in (*CHOICE, *REPORT)]
    for part in arguments.parts:
        PARTS[part](corpora)


PARTS = {"fit": print_fits, "controls": print_controls, "features": print_features, "queue": print_queue}

if __name__ == "__main__":
    main()
