"""Measure what a share lets pass of a stream, by partitions, embedder and window.

    PYTHONPATH=tests python -m policies.shares FILE... [--share 0.1] [--windows 50 100 200] [--seed 7]

Each FILE has traces, one a line, which are shuffled. With several files, the second and
later ones follow the first: the stream shifts. Texts are embedded once for each embedder.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.scoring import PartitionState, Scorer, VectorCache, embedding_text
from knowledgepulse_worker.settings import Settings, override
from knowledgepulse_worker.tools.score.offline import Partitions

BLOCK, SETTLED = 40, 200
"""The traces of a figure after a shift; those after which what passes is compared with the best of all."""


def traces_of(files, seed):
    """Return the lines of each file in a random order, with the file's number."""
    found = []
    for number, file in enumerate(files):
        lines = file.read_bytes().splitlines()
        random.Random(seed).shuffle(lines)
        found += [(number, line) for line in lines]
    return found


def vectors_of(backend, traces, text):
    """Return the vector of each trace; None without an embedder."""
    settings = override(Settings(), "embedding", {"backend": backend, "text": text})
    embedder = load_embedder(settings.embedding, settings.cache)
    if embedder is None:
        return [None] * len(traces), 1
    texts = [embedding_text(trace, settings.embedding.trace_text) for trace in traces]
    pieces = [embedder.embed(texts[at : at + 8]).vectors for at in range(0, len(texts), 8)]
    return [vector for piece in pieces for vector in piece], embedder.dimensions


def decisions(lines, traces, vectors, dimensions, policy, partitions, key):
    """Return the scores of a stream in its order."""
    topic = Partitions(partitions, key, Scorer)
    states = {}
    found = []
    for line, trace, vector in zip(lines, traces, vectors, strict=True):
        number = topic.next_partition(line)
        if number not in states:
            scorer = Scorer(policy=policy)
            scorer.state = PartitionState(VectorCache(1000, dimensions))
            states[number] = scorer
        found.append(states[number].evaluate_embedded(trace, vector, at=0.0))
    return found


def passing(scores, share, tuned, window):
    """Return a row's figures: what the share lets pass, of all and with a full window, and the number.

    Before the last, the part of the passing traces that is among the best of all, once caches have filled.
    """
    passes = share_of([score.passes for score in scores])
    full = [score.passes for score in scores if score.of == window]
    filled = f"{len(full)} | {share_of(full):.1%}" if full else "0 | -"
    settled = scores[SETTLED:]
    least = reached([score.quality_score for score in settled], share)
    best = [score.quality_score >= least for score in settled if score.passes]
    number = share_of([score.quality_score >= tuned for score in scores])
    return f"{passes:.1%} | {filled} | {share_of(best):.2f} | {number:.1%}"


def reached(scores, share):
    """Return the score that a share of them reaches."""
    return sorted(scores, reverse=True)[int(share * len(scores))]


def share_of(passes):
    return sum(passes) / max(1, len(passes))


def main():
    parser = argparse.ArgumentParser(prog="python -m policies.shares", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--key", default="id")
    parser.add_argument("--embedders", nargs="+", default=["none", "lexical"])
    parser.add_argument("--text", default=None)
    parser.add_argument("--partitions", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--windows", nargs="+", type=int, default=[200])
    parser.add_argument("--seed", type=int, default=7, help="of the random order")
    given = parser.parse_args()
    numbered = traces_of(given.files, given.seed)
    lines = [line for _, line in numbered]
    traces = [decode_trace(line, 10**8) for line in lines]
    print("| embedder | partitions | window | pass | with a full window | pass | of the best | by a number |")
    print("|---|---|---|---|---|---|---|---|")
    for backend in given.embedders:
        vectors, dimensions = vectors_of(backend, traces, given.text)
        tuned = None
        for partitions in given.partitions:
            for window in given.windows:
                policy = Policy(share=given.share, share_window=window)
                scores = decisions(lines, traces, vectors, dimensions, policy, partitions, given.key)
                if tuned is None:  # the number that passes the share at the first partition count
                    tuned = reached([score.quality_score for score in scores], given.share)
                figures = passing(scores, given.share, tuned, window)
                print(f"| {backend} | {partitions} | {window} | {figures} |", flush=True)
                if len(given.files) > 1:
                    later = zip(numbered, scores, strict=True)
                    shifted = [score.passes for (at, _), score in later if at == 1][:400]
                    pieces = (shifted[at : at + BLOCK] for at in range(0, len(shifted), BLOCK))
                    print("after the shift, of each 40:", *(f"{share_of(piece):.2f}" for piece in pieces))


if __name__ == "__main__":
    main()
