"""Measure novelty and what passes by language, with one embedder.

    git clone https://github.com/fastapi/fastapi && git -C fastapi checkout c3f316b7
    PYTHONPATH=tests python -m languages.languages fastapi/docs --backend lexical
    PYTHONPATH=tests python -m languages.languages fastapi/docs [--model FOLDER [--prefix 'query: ']]

The texts are sections of FastAPI's documents, which have the same headings in each language, without code;
and the tasks of ``paraphrases.jsonl``, each in two wordings, which were written for this study.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from itertools import combinations
from pathlib import Path

import numpy as np

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import PartitionState, Scorer, VectorCache
from knowledgepulse_worker.settings import Settings, override

LANGUAGES = ("en", "es", "de", "fr", "ru", "zh", "ja", "ko")
SECTIONS = 640
CHARACTERS = 150
"""The shortest English section that is used."""
SHARE = 0.2
SEED = 7
PARAPHRASES = Path(__file__).with_name("paraphrases.jsonl")

HEADING = re.compile(r"^#+ .*\{ #(?P<anchor>\S+) \}$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|^\{\*.*?\*\}|^///.*?$|<[^>]*>|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def sections_of(folder):
    """Return the sections' texts by page and anchor."""
    found = {}
    for page in sorted(folder.rglob("*.md")):
        parts = HEADING.split(page.read_text(encoding="utf-8"))
        for anchor, text in zip(parts[1::2], parts[2::2], strict=True):
            found[page.relative_to(folder), anchor] = " ".join(CODE.sub("", text).split())
    return found


def parallel_sections(documents):
    """Return the same sections for each language, in the same random order."""
    sections = {language: sections_of(documents / language / "docs") for language in LANGUAGES}
    common = set.intersection(*(set(found) for found in sections.values()))
    long_enough = sorted(key for key in common if len(sections["en"][key]) >= CHARACTERS)
    chosen = random.Random(SEED).sample(long_enough, SECTIONS)
    return {language: [found[key] for key in chosen] for language, found in sections.items()}


def novelty_of(vectors):
    """Return the novelty of each vector but the first against those before it."""
    similarity = vectors @ vectors.T
    return np.array([np.clip(1 - similarity[row, :row].max(), 0, 1) for row in range(1, len(vectors))])


def paraphrase_order(first, second):
    """Return how often two wordings of a task are more similar than texts of two tasks (an AUC)."""
    same = np.sum(first * second, axis=1)
    tasks, wordings = combinations(range(len(first)), 2), (first, second)
    other = np.array([wording[a] @ two[b] for a, b in tasks for wording in wordings for two in wordings])
    return np.mean(same[:, None] > other)


def passing(vectors, policy):
    """Return the share of each language that passes by rank, of streams with all of them.

    In each stream, the languages take turns, and no section is there in two languages. Together, the streams
    have each section once in each language.
    """
    ranked = {language: [] for language in LANGUAGES}
    for stream in range(len(LANGUAGES)):
        scorer = Scorer(policy=policy)
        scorer.state = PartitionState(VectorCache(SECTIONS, vectors["en"].shape[1]))
        for number in range(SECTIONS):
            language = LANGUAGES[(number + stream) % len(LANGUAGES)]
            trace = ReasoningTrace.new(
                objective="x",
                steps=[{"type": "thought"}, {"type": "observation"}],
                result_summary="x",
                confidence=0.5,
                success=True,
                task_domain=language,
            )
            score = scorer.evaluate_embedded(trace, vectors[language][number], at=0.0)
            if score.rank is not None:
                ranked[language].append(score.passes)
    return {language: np.mean(passes) for language, passes in ranked.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--backend", default="sentence-transformers")
    parser.add_argument("--model")
    parser.add_argument("--prefix", default="")
    arguments = parser.parse_args()
    over = {"backend": arguments.backend, "model": arguments.model, "prefix": arguments.prefix}
    settings = override(Settings(), "embedding", over)
    embedder = load_embedder(settings.embedding, settings.cache)
    sections = parallel_sections(arguments.documents)
    vectors = {language: embedder.embed(texts).vectors for language, texts in sections.items()}
    tasks = [json.loads(line) for line in PARAPHRASES.read_text(encoding="utf-8").splitlines()]
    domains = {language: {"share": SHARE} for language in LANGUAGES}
    shared = passing(vectors, Policy(share=SHARE))
    apart = passing(vectors, Policy(domains=domains))
    novelty = {language: novelty_of(vectors[language]) for language in LANGUAGES}
    threshold = np.median(novelty["en"])
    print(f"{embedder.description}, {embedder.runtime}\n")
    print("| language | mean novelty | pass | one share | a share each | paraphrases |")
    print("|---|---|---|---|---|---|")
    for language in LANGUAGES:
        paraphrases = "-"
        if language in tasks[0]:
            wordings = (embedder.embed([task[language][at] for task in tasks]).vectors for at in (0, 1))
            paraphrases = f"{paraphrase_order(*wordings):.2f}"
        passes = (
            f"{np.mean(novelty[language] > threshold):.0%} | {shared[language]:.0%} | {apart[language]:.0%}"
        )
        print(f"| {language} | {novelty[language].mean():.2f} | {passes} | {paraphrases} |")


if __name__ == "__main__":
    main()
