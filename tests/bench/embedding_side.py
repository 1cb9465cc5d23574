"""A process that embeds in one of the compared ways, on request.

python -m bench.embedding_side forward bfloat16 full

It prints lines of JSON. The first line is null and says that its modules are imported. After the first line
on standard input it prints its description. Each further input line is a number of seconds, for which it
prints its texts per second.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from bench.machine import cores
from bench.traces import endless_texts
from knowledgepulse_worker.embedding import Batcher, load_embedder
from knowledgepulse_worker.embedding.base import Precision
from knowledgepulse_worker.embedding.bert import read_bert
from knowledgepulse_worker.embedding.forward import Forward
from knowledgepulse_worker.embedding.tokenizing import PrefixTokenizer, Window, read_tokenizer
from knowledgepulse_worker.embedding.weights import find_model
from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings

MAX_TOKENS = EmbeddingSettings().max_tokens
TRIED = 0.5
"""Seconds of work before the first measurement."""

Rate = Callable[[float], tuple[float, int]]
"""Embeds for a number of seconds; returns the texts per second, and the number of texts for the CPU time."""


def products(precision: Precision, _lengths: str) -> tuple[str, Rate]:
    """The bare matrix products of a full window in PyTorch, with a thread on each core."""
    torch.set_num_threads(1)
    dtype = getattr(torch, precision)
    bert = read_bert(find_model(None, None, None).path)
    matrices = [
        torch.from_numpy(tensor).to(dtype)
        for name, tensor in bert.weights.items()
        if name.startswith("encoder.") and tensor.ndim == 2
    ]
    inputs = {matrix.shape[1]: torch.ones(MAX_TOKENS, matrix.shape[1], dtype=dtype) for matrix in matrices}
    heads = torch.ones(bert.heads, MAX_TOKENS, bert.dimensions // bert.heads, dtype=dtype)

    def call(_ids: list[int]) -> None:
        with torch.inference_mode():
            for matrix in matrices:
                torch.nn.functional.linear(inputs[matrix.shape[1]], matrix)
            for _ in range(bert.layers):
                torch.matmul(torch.matmul(heads, heads.transpose(1, 2)), heads)

    return f"PyTorch, {len(cores())} threads, {precision}", _in_threads(call, [[]])


def forward(precision: Precision, lengths: str) -> tuple[str, Rate]:
    """The worker's forward pass over tokenized texts, with a thread on each core."""
    model = find_model(None, None, None)
    bert, window = read_bert(model.path), Window(MAX_TOKENS)
    tokenizer = PrefixTokenizer(read_tokenizer(model.path, bert.vocabulary), MAX_TOKENS)
    ids = [window.truncate(row) for row in tokenizer.ids(list(itertools.islice(endless_texts(lengths), 300)))]
    call = Forward(bert, precision, MAX_TOKENS, len(cores()))
    call.warm()
    return f"{call.runtime}, {len(cores())} threads, {precision}", _in_threads(call, ids)


def _in_threads(call: Callable[[list[int]], object], texts: list[list[int]]) -> Rate:
    """Process the texts in turn, with one thread per core."""
    source = itertools.cycle(texts)  # next() is atomic under the GIL

    def work(seconds: float, counts: list[tuple[int, float]]) -> None:
        torch.set_num_threads(1)
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            call(next(source))
            done += 1
        counts.append((done, spent))

    def rate(seconds: float) -> tuple[float, int]:
        counts: list[tuple[int, float]] = []
        threads = [threading.Thread(target=work, args=(seconds, counts)) for _ in cores()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done / spent for done, spent in counts), sum(done for done, _ in counts)

    return rate


def ours(precision: Precision, lengths: str) -> tuple[str, Rate]:
    """The worker's embedder and batcher with a full queue."""
    settings = EmbeddingSettings(precision=precision, device="cpu")
    embedder = load_embedder(settings, CacheSettings(), parallel=len(cores()))
    assert embedder is not None
    embedder.warm()
    texts = endless_texts(lengths)
    loop = asyncio.new_event_loop()
    batcher = Batcher(embedder)

    async def embed(seconds: float) -> tuple[float, int]:
        ends: list[float] = []

        async def keep_waiting(until: float) -> None:
            while time.monotonic() < until:
                await (await batcher.submit(next(texts)))
                ends.append(time.monotonic())

        started = time.monotonic()
        await asyncio.gather(*(keep_waiting(started + seconds) for _ in range(2 * batcher.limit)))
        # Ignore the texts in flight at the end, when the queue is no longer full.
        return sum(end <= started + seconds for end in ends) / seconds, len(ends)

    description = f"{embedder.precision} in {embedder.runtime} on {embedder.device}"
    return description, lambda seconds: loop.run_until_complete(embed(seconds))


def encode(size: str, lengths: str) -> tuple[str, Rate]:
    """Plain sentence-transformers, with single texts or lists."""
    model = SentenceTransformer(str(find_model(None, None, None).path), device="cpu")
    batch = int(size)
    texts = endless_texts(lengths)

    def rate(seconds: float) -> tuple[float, int]:
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            if batch == 1:
                model.encode(next(texts))
            else:
                model.encode(_some(texts, 2 * batch), batch_size=batch)
            done += 1 if batch == 1 else 2 * batch
        return done / spent, done

    return f"float32, batches of {batch}, {torch.get_num_threads()} threads", rate


def _some(texts: Iterator[str], count: int) -> list[str]:
    return list(itertools.islice(texts, count))


WAYS = {"products": products, "forward": forward, "ours": ours, "encode": encode}


def main() -> None:
    transformers_logging.disable_progress_bar()
    way, argument, lengths = sys.argv[1:]
    print(json.dumps(None), flush=True)
    sys.stdin.readline()
    description, rate = WAYS[way](argument, lengths)
    rate(TRIED)
    print(json.dumps(description), flush=True)
    for line in sys.stdin:
        before = time.process_time()
        texts_a_second, count = rate(float(line))
        print(json.dumps([texts_a_second, (time.process_time() - before) / count]), flush=True)


if __name__ == "__main__":
    main()
