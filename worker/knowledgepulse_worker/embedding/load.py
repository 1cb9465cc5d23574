"""Create the configured embedder."""

from __future__ import annotations

import ctypes
import logging
import os
from importlib.util import find_spec

from knowledgepulse_worker.embedding.base import Embedder, ModelInput
from knowledgepulse_worker.embedding.cores import usable_cores
from knowledgepulse_worker.embedding.lexical import LexicalEmbedder
from knowledgepulse_worker.embedding.speed import Speed, measure
from knowledgepulse_worker.errors import ModelError
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings, Settings

logger = logging.getLogger(__name__)


def load_embedder(settings: EmbeddingSettings, cache: CacheSettings, parallel: int = 1) -> Embedder | None:
    """Return the embedder, or None for the backend ``none``.

    Args:
        settings: the settings that select the embedder.
        cache: the cache's settings, whose dimensions must match the embedder's.
        parallel: the number of threads that call concurrently.

    Raises:
        ModelError: the model cannot be loaded, or its dimensions differ from the cache's; the message names
            the setting.
        MissingExtraError: the packages that run the model are not installed.
    """
    match settings.backend:
        case "none":
            return None
        case "lexical":
            return LexicalEmbedder(cache.dimensions, settings.trace_text)
        case "sentence-transformers":
            embedder = _load_model(settings, parallel)
    if embedder.dimensions != cache.dimensions:
        raise ModelError(
            f"cache.dimensions: got {cache.dimensions}; {embedder.description} (embedding.model) "
            f"makes vectors with {embedder.dimensions} dimensions"
        )
    logger.info("%s runs in %s on %s", embedder.description, embedder.runtime, embedder.device)
    return embedder


def warm_embedder(settings: Settings) -> tuple[Embedder | None, Speed | None]:
    """Load the embedder of a worker, use it once, and time it; return None for both without one.

    An embedder that always fails does so here, where no record is blamed.

    Raises:
        EmbeddingError: the model cannot be loaded, or fails.
        MissingExtraError: the packages that run it are not installed.
    """
    embedder = load_embedder(settings.embedding, settings.cache, usable_cores())
    if embedder is None:
        return None, None
    embedder.warm()
    return embedder, measure(embedder, settings.limits.budget)


def _load_model(settings: EmbeddingSettings, parallel: int) -> Embedder:
    """Load a BERT model for the CPU, or any model into PyTorch if it runs on a GPU or is not a BERT model."""
    with extra("worker"):  # these imports are slow, and the other backends do not need them
        from knowledgepulse_worker.embedding.bert import UnsupportedModelError  # noqa: PLC0415
        from knowledgepulse_worker.embedding.tokenizing import Window  # noqa: PLC0415
        from knowledgepulse_worker.embedding.transformer import TransformerEmbedder  # noqa: PLC0415
        from knowledgepulse_worker.embedding.weights import find_model  # noqa: PLC0415

    model = find_model(settings.model, settings.revision, settings.cache_folder)
    window = Window(settings.max_tokens, settings.truncation)
    model_input = ModelInput(settings.trace_text, settings.prefix)
    reason = "embedding.device: cuda needs PyTorch"
    if settings.device == "cpu" or (settings.device == "auto" and not _has_gpu()):
        if parallel > 1:  # the tokenizer's threads would compete with ours
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            return TransformerEmbedder(model, window, model_input, settings.precision, parallel)
        except UnsupportedModelError as error:
            reason = str(error)
    with extra("sentence-transformers", reason):
        from knowledgepulse_worker.embedding.sentence_transformer import SentenceTransformerEmbedder  # noqa: PLC0415

    return SentenceTransformerEmbedder(model, window, model_input, settings.precision, settings.device)


def _has_gpu() -> bool:
    """Return whether PyTorch is installed and could find a CUDA device; PyTorch's own check takes seconds."""
    if find_spec("sentence_transformers") is None:
        return False
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
