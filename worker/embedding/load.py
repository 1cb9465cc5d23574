"""Create the configured embedder."""

from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from worker.embedding.base import Embedder
from worker.embedding.hashing import HashingEmbedder
from worker.embedding.precision import choose_precision
from worker.errors import EmbeddingError
from worker.extras import extra
from worker.settings import CacheSettings, EmbeddingSettings

if TYPE_CHECKING:  # these imports are slow, and unneeded for `none` and `hashing`
    from worker.embedding.source import ModelSource
    from worker.embedding.transformer import Precision, Runtime, TransformerEmbedder, Window

logger = logging.getLogger(__name__)


def load_embedder(settings: EmbeddingSettings, cache: CacheSettings, parallel: int = 1) -> Embedder | None:
    """Return the embedder; None for the backend ``none``.

    Args:
        settings: select the embedder.
        cache: its dimensions must match the embedder's.
        parallel: the number of concurrently calling threads.

    Raises:
        EmbeddingError: the model cannot be loaded, or its dimensions differ from the cache's; names the
            setting.
        MissingExtraError: the packages that run a model are not installed.
    """
    match settings.backend:
        case "none":
            return None
        case "hashing":
            return HashingEmbedder(cache.dimensions, settings.max_tokens, settings.text)
        case "sentence-transformers":
            return _load_transformer(settings, cache, parallel)


def _load_transformer(settings: EmbeddingSettings, cache: CacheSettings, parallel: int) -> Embedder:
    with extra("worker"):
        from worker.embedding.source import find_model  # noqa: PLC0415
        from worker.embedding.transformer import TransformerEmbedder, Window  # noqa: PLC0415

    if parallel > 1:  # the tokenizer's threads would compete with ours
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    source = find_model(settings.model, settings.revision)
    window = Window(settings.max_tokens, settings.truncation)
    folder = cache_folder(settings)
    runtime = _load_runtime(settings.device, source, window, folder, parallel)
    logger.info("%s runs in %s on %s", source.description, runtime.name, runtime.device)
    dimensions = runtime.transformer.dimensions
    if dimensions != cache.dimensions:
        raise EmbeddingError(
            f"cache.dimensions: got {cache.dimensions}; {source.description} (embedding.model) "
            f"makes vectors of {dimensions}"
        )

    def embedder(precision: Precision) -> TransformerEmbedder:
        return TransformerEmbedder(runtime, window, precision, source.description, settings.text)

    if settings.precision != "auto":
        return embedder(settings.precision)
    conditions = {
        "identity": runtime.transformer.identity,
        "runtime": runtime.name,
        "device": runtime.device,
        "parallel": str(parallel),
    }
    return choose_precision(embedder, conditions, folder)


def cache_folder(settings: EmbeddingSettings) -> Path | None:
    """Return the folder for converted models and measurements; None without a model or a home folder."""
    if settings.backend != "sentence-transformers":
        return None
    if settings.cache_folder is not None:
        return settings.cache_folder
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    return caches / "knowledgepulse-worker"


def _load_runtime(
    device: str, source: ModelSource, window: Window, folder: Path | None, parallel: int
) -> Runtime:
    """Return OpenVINO on a CPU; PyTorch on a GPU, or if OpenVINO cannot run the model."""
    if device == "cuda" or (device == "auto" and _has_nvidia_driver()):
        import torch  # noqa: PLC0415 - takes seconds and 600 MB, which a CPU need not

        from worker.embedding.pytorch import PyTorchRuntime  # noqa: PLC0415

        if torch.cuda.is_available():
            return PyTorchRuntime(source, window, "cuda")
        if device == "cuda":
            raise EmbeddingError(
                "embedding.device: got cuda; PyTorch finds no CUDA device here, set auto or cpu"
            )
    try:
        from worker.embedding.openvino import load_openvino  # noqa: PLC0415

        return load_openvino(source, window, folder, parallel)
    except EmbeddingError:
        raise
    except Exception as error:  # noqa: BLE001 - not installed, or whatever a model cannot be converted for
        logger.warning("embedding in PyTorch, which is slower than OpenVINO: %s", error)
    from worker.embedding.pytorch import PyTorchRuntime  # noqa: PLC0415

    return PyTorchRuntime(source, window, "cpu", parallel)


def _has_nvidia_driver() -> bool:
    """Return whether PyTorch could find a CUDA device at all; its own check takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
