"""Read a BERT sentence-transformers model: its configuration, its weights and its pooling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from knowledgepulse_worker.embedding.tokenizing import Window
from knowledgepulse_worker.errors import ModelError

ModelWeights = Mapping[str, NDArray[np.float32]]

_ROBERTA = ("roberta", "xlm-roberta")
"""Model types whose positions begin after the padding token's id."""

_CONFIG: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert", *_ROBERTA),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}
"""Supported values in ``config.json``; a missing member has the first one, as in transformers."""

_OPTIONAL: dict[str, dict[str, tuple[Any, ...]]] = {
    "sentence_bert_config.json": {"do_lower_case": (False,)},
    "config_sentence_transformers.json": {"default_prompt_name": (None,)},
}
"""Supported values in these files, if they exist: a text must not be changed before it is tokenized."""

_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The members of a pooling configuration from before sentence-transformers 6, and their current names."""


_DEFAULT_ARCHITECTURE = (12, 1e-12, None)
"""BERT's number of heads, its epsilon and the id that its positions begin after."""


class UnsupportedModelError(ModelError):
    """The model has another architecture, which sentence-transformers may be able to run."""


@dataclass(frozen=True)
class Bert:
    """A BERT sentence-transformers model: its shape, weights and pooling.

    Attributes:
        file: the file with the weights.
        dimensions: the length of the vectors.
        layers: the number of layers.
        heads: the number of attention heads in a layer.
        epsilon: the epsilon of the layer normalization.
        positions: the longest text, in tokens.
        padding: the id of the padding token, after which positions begin, as in RoBERTa; None if they begin
            at 0.
        vocabulary: the number of token ids.
        pooling: ``mean`` for the mean over the text's tokens, or ``cls`` for the first token.
        weights: the tensors by their names in ``BertModel``, float32.
    """

    file: Path
    dimensions: int
    layers: int
    heads: int
    epsilon: float
    positions: int
    padding: int | None
    vocabulary: int
    pooling: str
    weights: ModelWeights

    def identity(self, window: Window) -> str:
        """Return a hash of all that a text's vector depends on, but for the computing library.

        Mean pooling and BERT's defaults leave no mark, as in ledgers from before these counted.
        """
        digest = hashlib.sha256()
        for name, tensor in sorted(self.weights.items()):
            digest.update(f"0.model.{name}".encode())  # the name in sentence-transformers
            digest.update(np.ascontiguousarray(tensor).tobytes())
        digest.update(f"{window.max_tokens} {window.truncation} {self.dimensions}".encode())
        if self.pooling != "mean":
            digest.update(self.pooling.encode())
        architecture = (self.heads, self.epsilon, self.padding)
        if architecture != _DEFAULT_ARCHITECTURE:
            digest.update(repr(architecture).encode())
        return digest.hexdigest()

    def position_embeddings(self) -> NDArray[np.float32]:
        """Return the row to add to a token at each position; the first ``padding + 1`` are no positions."""
        first = 0 if self.padding is None else self.padding + 1
        positions = self.tensor(
            "embeddings.position_embeddings.weight", (first + self.positions, self.dimensions)
        )
        kinds = self.tensor("embeddings.token_type_embeddings.weight", (None, self.dimensions))
        sums: NDArray[np.float32] = positions + kinds[0]
        return sums

    def tensor(self, name: str, shape: Sequence[int | None]) -> NDArray[np.float32]:
        """Return a tensor of a shape; None in it is any size.

        Raises:
            ModelError: the tensor is missing, or its shape does not fit the configuration.
        """
        tensor = self.weights.get(name)
        if tensor is None:
            raise ModelError(f"embedding.model: {self.file} has no tensor {name}, which config.json implies")
        fits = len(tensor.shape) == len(shape) and all(
            expected in (None, actual) for expected, actual in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            expected = " × ".join("any" if size is None else str(size) for size in shape)
            actual = " × ".join(map(str, tensor.shape))
            raise ModelError(
                f"embedding.model: {self.file}: {name} has the shape {actual}; config.json implies {expected}"
            )
        return tensor


def read_bert(folder: Path) -> Bert:
    """Read a model's configuration and weights.

    Raises:
        UnsupportedModelError: the model has another architecture.
        ModelError: a file is missing, is damaged or does not fit the others; the message names the file.
    """
    file = folder / "config.json"
    config = _read_object(file)
    _require_supported(file, config, _CONFIG)
    for name, supported in _OPTIONAL.items():
        if (folder / name).exists():
            _require_supported(folder / name, _read_object(folder / name), supported)
    number = partial(_number, file, config)
    padding = int(number("pad_token_id")) if config.get("model_type") in _ROBERTA else None
    bert = Bert(
        file=folder / "model.safetensors",
        dimensions=int(number("hidden_size")),
        layers=int(number("num_hidden_layers")),
        heads=int(number("num_attention_heads")),
        epsilon=number("layer_norm_eps", 1e-12),
        positions=int(number("max_position_embeddings")) - (0 if padding is None else padding + 1),
        padding=padding,
        vocabulary=int(number("vocab_size")),
        pooling=_read_pooling(folder),
        weights=_read_weights(folder / "model.safetensors"),
    )
    if bert.heads < 1 or bert.dimensions % bert.heads:
        raise ModelError(
            f"embedding.model: {file}: {bert.dimensions} dimensions do not divide among {bert.heads} heads"
        )
    return bert


def _require_supported(file: Path, config: Mapping[str, Any], supported: Mapping[str, Sequence[Any]]) -> None:
    for key, values in supported.items():
        if (value := config.get(key, values[0])) not in values:
            expected = " or ".join(map(repr, values))
            raise UnsupportedModelError(f"embedding.model: {file}: {key} is {value!r}, not {expected}")


def _number(file: Path, config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = config.get(key, default)
    if not isinstance(value, int | float):
        raise ModelError(f"embedding.model: {file}: {key} is {value!r}, not a number")
    return value


def _read_object(file: Path) -> dict[str, Any]:
    content = _read_json(file)
    if not isinstance(content, dict):
        raise ModelError(f"embedding.model: {file} is not a JSON object")
    return content


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise ModelError(f"embedding.model: {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"embedding.model: {file} is not JSON: {error}") from error


def _read_pooling(folder: Path) -> str:
    modules = _read_json(folder / "modules.json")
    try:
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    except (KeyError, TypeError) as error:
        raise ModelError(f"embedding.model: {folder / 'modules.json'} is not a list of modules") from error
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedModelError(
            f"embedding.model: {folder / 'modules.json'}: has the modules {', '.join(kinds)}"
        )
    file = folder / str(modules[1].get("path", "1_Pooling")) / "config.json"
    config = _read_object(file)
    modes = config.get("pooling_mode") or [mode for key, mode in _POOLING.items() if config.get(key)]
    mode = modes if isinstance(modes, str) else "+".join(modes)
    if mode not in ("mean", "cls"):
        raise UnsupportedModelError(
            f"embedding.model: {file}: pools by {mode or 'nothing known'}, not mean or cls"
        )
    return mode


def _read_weights(file: Path) -> ModelWeights:
    try:
        tensors = load_file(file)
    except OSError as error:
        raise ModelError(f"embedding.model: {file} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, KeyError, TypeError) as error:  # the last two for formats that NumPy lacks
        raise ModelError(f"embedding.model: {file} is damaged or of an unknown format: {error!r}") from error
    return {
        name.removeprefix("bert.").removeprefix("roberta."): tensor.astype(np.float32, copy=False)
        for name, tensor in tensors.items()
        if np.issubdtype(tensor.dtype, np.floating)
    }
