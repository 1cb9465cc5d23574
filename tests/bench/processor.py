"""Section `processor`: this machine's row in the table of processors in docs/performance.md."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

from bench.context import Context
from bench.machine import cores, processor
from bench.measure import Budget, Figure, Section, alternate
from bench.traces import endless_texts
from knowledgepulse_worker.embedding.bert import Bert, read_bert
from knowledgepulse_worker.embedding.forward import Forward, precisions
from knowledgepulse_worker.embedding.int16 import IntegerForward, instructions_for
from knowledgepulse_worker.embedding.tokenizing import PrefixTokenizer, Window, read_tokenizer
from knowledgepulse_worker.embedding.weights import find_model
from knowledgepulse_worker.settings import EmbeddingSettings, LimitSettings

MAX_TOKENS = EmbeddingSettings().max_tokens
BUDGET = LimitSettings().budget
TEXTS = 8
"""Of each precision in each round."""


async def run(context: Context, budget: Budget) -> Section:
    """Embed full windows in each precision, on one core."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    title = f"{processor()}{limit and f', limited to {limit}'}"
    section = Section("processor", f"Embedding {MAX_TOKENS} tokens: {title}")
    bert = read_bert(find_model(None, None, None).path)
    texts = itertools.cycle(_windows(bert, 64))
    passes: dict[str, Callable[[list[int]], object]] = {
        precision: Forward(bert, precision, MAX_TOKENS, len(cores())) for precision in precisions()
    }
    if instructions_for(bert) is not None:
        passes["int16"] = IntegerForward(bert, MAX_TOKENS)
    seconds = await alternate(
        {precision: _each(forward, texts) for precision, forward in passes.items()},
        budget.rounds(context.rounds),
    )
    for precision, times in seconds.items():
        rates = [rate_within(BUDGET, time) for time in times]
        section.figures += [
            Figure(f"CPU time of a text, {precision}", "ms", [1000 * time for time in times]),
            Figure(f"traces within the budget, {precision}", "/s a core", rates),
        ]
    section.notes.append(
        "traces within the budget: arrivals at random at which a score takes the budget on average, "
        "if a text takes the CPU time (M/D/1); ONEDNN_MAX_CPU_ISA=AVX2 shows a lesser processor"
    )
    return section


def rate_within(budget: float, seconds: float) -> float:
    """Return the arrivals a second at which waiting and computing take the budget on average.

    A queue with random arrivals and equal service times of which the server is busy for a share r waits
    r / (2 - 2r) service times (Pollaczek and Khinchine's formula).
    """
    waits = budget / seconds - 1
    return max(0.0, 2 * waits / (1 + 2 * waits)) / seconds if waits > 0 else 0.0


def _windows(bert: Bert, count: int) -> list[list[int]]:
    model, window = find_model(None, None, None), Window(MAX_TOKENS)
    tokenizer = PrefixTokenizer(read_tokenizer(model.path, bert.vocabulary), MAX_TOKENS)
    return [
        window.truncate(row) for row in tokenizer.ids(list(itertools.islice(endless_texts("full"), count)))
    ]


def _each(forward: Callable[[list[int]], object], texts: Iterator[list[int]]):
    forward(next(texts))

    async def seconds() -> float:
        """Return the CPU seconds of a text."""
        started = time.process_time()
        for _ in range(TEXTS):
            forward(next(texts))
        return (time.process_time() - started) / TEXTS

    return seconds
