"""Vectors that sentence-transformers gave to texts, recorded so that comparing with it needs no PyTorch.

`make check NAME=reference` checks that it still gives the recorded vectors. `PYTHONPATH=tests python -m
support.recorded_vectors` records them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding.weights import find_model
from knowledgepulse_worker.scoring import embedding_text
from support.bert import write_bert
from support.traces import DATA, real_traces

RECORDED = DATA / "sentence_transformers.npz"

LONG = "the agent reads the log and finds the failing test " * 200
TEXTS = {
    "a word": "build",
    "a sentence": "The lock file is stale, so the build fails.",
    "empty": "",
    "spaces": "  \n\t ",
    "not Latin": "größer ビルドが失敗した 构建失败 \U0001f600",
    "controls": "a\x00b\x1f\x85c",
    "brackets": "[SEP] [CLS] [PAD]",
    "long": LONG,
    "long without a space": "x" * 5000,
}
SMALL_TEXTS = [
    *("", "a", "abc def", "a [PAD] b", "a <pad> <pad>b", "構建失敗 ビルド 한국어  ﬁt", "x" * 30),
    "q w e r t y u i o p " * 10,
]
SMALL_MODELS: dict[str, dict[str, Any]] = {
    f"{pooling}, {'normalized' if normalize else 'as it is'}": {"pooling": pooling, "normalize": normalize}
    for pooling, normalize in product(("mean", "cls"), (True, False))
} | {
    "Unigram": {"unigram": True},
    "XLM-RoBERTa": {"unigram": True, "model_type": "xlm-roberta", "pad_token_id": 1},
    "RoBERTa": {"unigram": True, "model_type": "roberta", "pad_token_id": 1, "layer_norm_eps": 1e-5},
}
"""Variants of :func:`support.bert.write_bert`."""


def standard_texts() -> list[str]:
    """Return texts for the packaged model with a window of 256 tokens."""
    traces = [ReasoningTrace.model_validate_json(line) for line in real_traces()[:10]]
    return [*TEXTS.values(), *map(embedding_text, traces), LONG[:600], LONG[:1000], LONG[:1300]]


def recorded(name: str) -> NDArray[np.float32]:
    """Return the recorded vectors of "standard" or of a small model, shape (texts, dimensions)."""
    with np.load(RECORDED) as arrays:
        return arrays[name]


def computed() -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Compute all vectors with sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    def encode(folder: Path, texts: list[str], window: int | None = None) -> NDArray[np.float32]:
        model = SentenceTransformer(str(folder), device="cpu")
        model.max_seq_length = window or model.max_seq_length
        return model.encode(texts, normalize_embeddings=window is None, show_progress_bar=False)

    yield "standard", encode(find_model(None, None, None).path, standard_texts(), 256)
    with TemporaryDirectory() as folder:
        for name, variant in SMALL_MODELS.items():
            yield name, encode(write_bert(Path(folder, name), **variant), SMALL_TEXTS)


if __name__ == "__main__":
    np.savez_compressed(RECORDED, **dict(computed()))
