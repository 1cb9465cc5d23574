"""Build the network of a BERT sentence-transformers model from its safetensors with OpenVINO's operations.

The architecture follows Devlin et al. 2019 (arXiv:1810.04805), as in transformers' ``BertModel``. RoBERTa
(Liu et al. 2019, arXiv:1907.11692) and XLM-RoBERTa differ in the numbers of the positions only. The network
has the transformer and the pooling (mean or CLS) of a sentence-transformers folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
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

# OpenVINO would report each import to its makers if it found this module.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
import openvino  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

__all__ = ["Bert", "UnsupportedModelError", "build_network", "openvino", "read_bert"]

ModelWeights = Mapping[str, NDArray[np.float32]]

_MASKED_SCORE = -1e4
"""Added to the attention scores of padding, whose share is then exp(-10,000) = 0 in every precision."""

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


def read_bert(folder: Path) -> Bert:
    """Read a model's configuration and weights.

    Raises:
        UnsupportedModelError: :func:`build_network` cannot build the model.
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


def build_network(bert: Bert, tokens: int | None = None) -> openvino.Model:
    """Return the network that turns a text's token ids into its vector.

    The input ``ids`` (int64) has the shape (1, ``tokens``). If ``tokens`` is None, ``ids`` can have any
    length and end with padding, and a second input ``length``, shape (1,), int64, gives the number of ids
    before the padding. The output, shape (1, dimensions), float32, has length 1, even if the model does not
    normalize its vectors.

    Raises:
        ModelError: a tensor is missing, or its shape does not fit the configuration.
    """
    ids = ops.parameter([1, -1 if tokens is None else tokens], np.int64, name="ids")
    if tokens is not None:
        return openvino.Model([_Builder(bert).vector(ids, None)], [ids], "bert")
    length = ops.parameter([1], np.int64, name="length")
    return openvino.Model([_Builder(bert).vector(ids, length)], [ids, length], "bert")


class _Builder:
    """Builds the network with a method for each of its parts.

    Attention consists of single operations, which OpenVINO runs faster than its combined operation.
    """

    def __init__(self, bert: Bert) -> None:
        self._bert = bert

    def vector(self, ids: openvino.Node, length: openvino.Node | None) -> openvino.Node:
        """Return the text's vector; ``length`` is None if there is no padding."""
        bert = self._bert
        places = _places(ids)
        present = None if length is None else ops.convert(ops.less(places, length), "f32")
        mask = (
            None
            if present is None
            else ops.multiply(ops.subtract(_scalar(1), present), _scalar(_MASKED_SCORE))
        )
        tokens = self._embed(ids, places if bert.padding is None else _places_without(ids, bert.padding))
        for number in range(bert.layers):
            tokens = self._layer(tokens, mask, f"encoder.layer.{number}")
        pooled = ops.gather(tokens, _axis(0), _axis(1)) if bert.pooling == "cls" else _mean(tokens, present)
        return ops.normalize_l2(pooled, _axes(1), 1e-12, "max")

    def _embed(self, ids: openvino.Node, places: openvino.Node) -> openvino.Node:
        """Return the embeddings of the ids; ``places`` are the rows of the positions' table."""
        bert = self._bert
        words = self._table("embeddings.word_embeddings.weight", bert.vocabulary)
        first = 0 if bert.padding is None else bert.padding + 1
        positions = self._table("embeddings.position_embeddings.weight", first + bert.positions)
        kinds = self._table("embeddings.token_type_embeddings.weight", None)
        tokens = ops.add(ops.gather(_constant(words), ids, _axis(0)), _constant(kinds[:1]))
        tokens = ops.add(tokens, ops.gather(_constant(positions), places, _axis(0)))
        return self._normalized(tokens, "embeddings.LayerNorm")

    def _layer(self, tokens: openvino.Node, mask: openvino.Node | None, name: str) -> openvino.Node:
        width = self._bert.dimensions
        joined = ops.reshape(self._attention(tokens, mask, name), _axes(0, 0, width), special_zero=True)
        attended = ops.add(self._linear(joined, f"{name}.attention.output.dense", width), tokens)
        attended = self._normalized(attended, f"{name}.attention.output.LayerNorm")
        inner = ops.gelu(self._linear(attended, f"{name}.intermediate.dense", None), "erf")
        outer = ops.add(self._linear(inner, f"{name}.output.dense", width), attended)
        return self._normalized(outer, f"{name}.output.LayerNorm")

    def _attention(self, tokens: openvino.Node, mask: openvino.Node | None, name: str) -> openvino.Node:
        """Return the heads' outputs, shape (1, tokens, heads, dimensions of a head)."""
        width = self._bert.dimensions
        query, key, value = (
            self._split(self._linear(tokens, f"{name}.attention.self.{part}", width))
            for part in ("query", "key", "value")
        )
        scale = _scalar((width // self._bert.heads) ** -0.5)
        scores = ops.multiply(ops.matmul(query, key, transpose_a=False, transpose_b=True), scale)
        shares = ops.softmax(scores if mask is None else ops.add(scores, mask), -1)
        heads = ops.matmul(shares, value, transpose_a=False, transpose_b=False)
        return ops.transpose(heads, _axes(0, 2, 1, 3))

    def _split(self, tokens: openvino.Node) -> openvino.Node:
        """Turn the shape (1, tokens, dimensions) into (1, heads, tokens, dimensions of a head)."""
        shape = _axes(0, 0, self._bert.heads, self._bert.dimensions // self._bert.heads)
        return ops.transpose(ops.reshape(tokens, shape, special_zero=True), _axes(0, 2, 1, 3))

    def _linear(self, inputs: openvino.Node, name: str, outputs: int | None) -> openvino.Node:
        bias = self._tensor(f"{name}.bias", (outputs,))
        weight = self._tensor(f"{name}.weight", (len(bias), None))
        product = ops.matmul(inputs, _constant(weight), transpose_a=False, transpose_b=True)
        return ops.add(product, _constant(bias))

    def _normalized(self, tokens: openvino.Node, name: str) -> openvino.Node:
        shape = (self._bert.dimensions,)
        scaled = ops.mvn(tokens, _axes(-1), True, self._bert.epsilon, "inside_sqrt")
        scaled = ops.multiply(scaled, _constant(self._tensor(f"{name}.weight", shape)))
        return ops.add(scaled, _constant(self._tensor(f"{name}.bias", shape)))

    def _table(self, name: str, rows: int | None) -> NDArray[np.float32]:
        return self._tensor(name, (rows, self._bert.dimensions))

    def _tensor(self, name: str, shape: Sequence[int | None]) -> NDArray[np.float32]:
        """Return a tensor; None in its shape is any size."""
        tensor = self._bert.weights.get(name)
        if tensor is None:
            raise ModelError(
                f"embedding.model: {self._bert.file} has no tensor {name}, which config.json implies"
            )
        fits = len(tensor.shape) == len(shape) and all(
            expected in (None, actual) for expected, actual in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            expected = " × ".join("any" if size is None else str(size) for size in shape)
            actual = " × ".join(map(str, tensor.shape))
            raise ModelError(
                f"embedding.model: {self._bert.file}: {name} has the shape {actual}; "
                f"config.json implies {expected}"
            )
        return tensor


def _mean(tokens: openvino.Node, present: openvino.Node | None) -> openvino.Node:
    """Return the mean over the tokens that are present; None means all."""
    if present is None:
        return ops.reduce_mean(tokens, _axes(1))
    total = ops.reduce_sum(ops.multiply(tokens, ops.unsqueeze(present, _axes(1))), _axes(1))
    return ops.divide(total, ops.reduce_sum(present, _axes(0)))


def _places(ids: openvino.Node) -> openvino.Node:
    """Return 0, 1, 2 and so on, shape (tokens,)."""
    tokens = ops.gather(ops.shape_of(ids, "i64"), _axis(1), _axis(0))
    return ops.range(_axis(0), tokens, _axis(1), "i64")


def _places_without(ids: openvino.Node, padding: int) -> openvino.Node:
    """Number the ids from ``padding + 1``; each padding token in the text has the number ``padding``.

    This is ``create_position_ids_from_input_ids`` of transformers' RoBERTa.
    """
    counted = ops.convert(ops.not_equal(ids, _axis(padding)), "i64")
    numbers = ops.multiply(ops.cumsum(counted, _axis(1)), counted)
    return ops.add(numbers, _axis(padding))


def _constant(values: NDArray[np.float32]) -> openvino.Node:
    """Return a constant that shares the array's memory, so that two networks do not copy it."""
    return ops.constant(np.ascontiguousarray(values), shared_memory=True)


def _scalar(value: float) -> openvino.Node:
    return ops.constant(np.float32(value))


def _axis(value: int) -> openvino.Node:
    return ops.constant(np.int64(value))


def _axes(*values: int) -> openvino.Node:
    return ops.constant(np.array(values, dtype=np.int64))
