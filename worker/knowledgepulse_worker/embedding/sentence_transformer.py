"""Run a sentence-transformers model in PyTorch with its own ``encode``, for GPUs and other architectures."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from knowledgepulse_worker.embedding.base import Embeddings, ModelInput, Precision
from knowledgepulse_worker.embedding.bert import UnsupportedModelError, read_bert
from knowledgepulse_worker.embedding.forward import precisions, require_precision
from knowledgepulse_worker.embedding.tokenizing import Window, well_formed
from knowledgepulse_worker.embedding.weights import MODEL_FILES, ModelFolder
from knowledgepulse_worker.errors import EmbeddingError, ModelError


class SentenceTransformerEmbedder:
    """Embeds texts with ``SentenceTransformer.encode``.

    Args:
        model: the model's folder.
        window: the part of a text that is read; its truncation must be ``standard``.
        model_input: what the model reads of a trace.
        precision: ``bfloat16`` multiplies matrices in that format; ``auto`` selects it on a GPU.
        device: ``auto`` selects a GPU if there is one.

    Raises:
        ModelError: the model cannot be loaded with these settings; the message names the setting.
    """

    parallel = 1
    batch = 32
    runtime = f"PyTorch {torch.__version__}"

    def __init__(
        self,
        model: ModelFolder,
        window: Window,
        model_input: ModelInput,
        precision: Precision | Literal["auto"] = "auto",
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        if window.truncation == "sdk":
            raise ModelError("embedding.truncation: sdk needs a BERT model on the CPU; set standard")
        self.device = _device(device)
        has = _precisions(self.device)
        best: Precision = "float32" if self.device == "cpu" else has[0]
        self.precision: Precision = best if precision == "auto" else precision
        require_precision(self.precision, has)
        self.description = model_input.description(model.description)
        self._input = model_input
        self._model = _load(model, self.device)
        window.require(_positions(self._model, window), model.description)
        self._model.max_seq_length = self._max_tokens = window.max_tokens
        self.dimensions = int(self._model.get_embedding_dimension() or 0)
        self.identity = model_input.identity(_identity(model, window))

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts; read unpaired surrogates as U+FFFD."""
        read = [well_formed(text) for text in self._input.read(texts)]
        bfloat16 = self.precision == "bfloat16"
        try:
            with torch.autocast(self.device, torch.bfloat16, enabled=bfloat16):
                vectors = self._model.encode(
                    read, batch_size=self.batch, normalize_embeddings=True, show_progress_bar=False
                )
            truncated = sum(len(ids) > self._max_tokens for ids in self._tokenize(read))
        except Exception as error:
            raise EmbeddingError(f"{self.description} failed on a batch of {len(texts)}: {error}") from error
        return Embeddings(vectors, truncated)

    def warm(self) -> None:
        """Embed a text, since PyTorch loads some libraries only at the first one."""
        self.embed(["any text"])

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._model.tokenizer(list(texts), truncation=False, verbose=False)[
            "input_ids"
        ]
        return ids


def _device(device: Literal["auto", "cpu", "cuda"]) -> str:
    if device != "auto" and (device == "cpu" or torch.cuda.is_available()):
        return device
    if device == "cuda":
        raise ModelError("embedding.device: got cuda; PyTorch finds no CUDA device here, set auto or cpu")
    return "cuda" if torch.cuda.is_available() else "cpu"


def _precisions(device: str) -> tuple[Precision, ...]:
    """Return the precisions that a device has instructions for, the fastest first."""
    if device == "cpu":
        return precisions()
    # Before Ampere, CUDA emulates bfloat16.
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return ("bfloat16", "float32") if has_bfloat16 else ("float32",)


def _load(model: ModelFolder, device: str) -> SentenceTransformer:
    transformers_logging.disable_progress_bar()
    try:
        loaded = SentenceTransformer(str(model.path), device=device, trust_remote_code=False)
    except Exception as error:
        raise ModelError(f"embedding.model: {model.path} cannot be loaded: {error}") from error
    return loaded.eval().float()


def _positions(model: SentenceTransformer, window: Window) -> int:
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return int(getattr(config, "max_position_embeddings", window.max_tokens))


def _identity(model: ModelFolder, window: Window) -> str:
    """Return a BERT model's identity, which all libraries share, or a hash of another model's files."""
    try:
        return read_bert(model.path).identity(window)
    except UnsupportedModelError:
        digest = hashlib.sha256(f"{window.max_tokens} {window.truncation}".encode())
    files = {file for pattern in [*MODEL_FILES, "*.bin"] for file in model.path.rglob(pattern)}
    for name, file in sorted((file.relative_to(model.path).as_posix(), file) for file in files):
        digest.update(hashlib.sha256(name.encode()).digest())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
