"""How many tasks N traces cover: the most diverse, against random ones and those that score best.

    PYTHONPATH=tests python -m novelty.selection FILE.jsonl ...

The vectors are lexical, and the scores those of a worker with the same vectors, in the file's order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from knowledgepulse_worker.embedding.lexical import LexicalEmbedder
from knowledgepulse_worker.scoring import Scorer, VectorCache, embedding_text
from knowledgepulse_worker.tools.export.selection import best, diverse
from novelty.__main__ import Corpus, read

DRAWS = 30


def row(corpus: Corpus) -> str:
    """Return the Markdown of a corpus, for half as many traces as there are tasks, and for as many."""
    tasks, embedder = corpus.runs.tasks, LexicalEmbedder()
    vectors = embedder.embed([embedding_text(trace, "parts") for trace in corpus.traces]).vectors
    scorer = Scorer(lambda text: embedder.embed([text]).vectors[0], cache=VectorCache(), text="parts")
    scores = [scorer.evaluate(trace).quality_score for trace in corpus.traces]
    count = len(set(tasks))
    cells = [corpus.name, str(len(tasks)), str(count)]

    def covered(chosen: Sequence[int]) -> int:
        return len(set(tasks[list(chosen)]))

    for number in (count // 2, count):
        drawn = [np.random.default_rng(seed).permutation(len(tasks))[:number] for seed in range(DRAWS)]
        cells += [
            f"{np.mean([covered(one) for one in drawn]):.1f}",
            str(covered(best(scores, number))),
            str(covered(diverse(vectors, vectors[:0], number, seed=0))),
        ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="novelty.selection", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    columns = [
        f"{how}, {number}"
        for number in ("N = tasks / 2", "N = tasks")
        for how in ("random", "best", "diverse")
    ]
    names = ["corpus", "runs", "tasks", *columns]
    sys.stdout.write(f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n")
    for path in parser.parse_args().files:
        sys.stdout.write(f"{row(read(path))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
