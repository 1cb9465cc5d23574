"""Build the network of a BERT model with OpenVINO's operations.

The architecture follows Devlin et al. 2019 (arXiv:1810.04805), as in transformers' ``BertModel``. RoBERTa
(Liu et al. 2019, arXiv:1907.11692) and XLM-RoBERTa differ in the numbers of the positions only. The network
has the transformer and the pooling (mean or CLS) of a sentence-transformers folder.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.embedding.bert import Bert

# OpenVINO would report each import to its makers if it found this module.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
import openvino  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

__all__ = ["build_network", "openvino"]

_MASKED_SCORE = -1e4
"""Added to the attention scores of padding, whose share is then exp(-10,000) = 0 in every precision."""


def build_network(bert: Bert) -> openvino.Model:
    """Return the network that turns a text's token ids into its vector.

    The input ``ids`` (int64), shape (1, tokens), has any length and ends with padding. A second input,
    ``length``, shape (1,), int64, is the number of ids before the padding. The output, shape (1, dimensions),
    float32, has length 1, even if the model does not normalize its vectors.

    Raises:
        ModelError: a tensor is missing, or its shape does not fit the configuration.
    """
    ids = ops.parameter([1, -1], np.int64, name="ids")
    length = ops.parameter([1], np.int64, name="length")
    return openvino.Model([_Builder(bert).vector(ids, length)], [ids, length], "bert")


class _Builder:
    """Builds the network with a method for each of its parts.

    Attention consists of single operations, which OpenVINO runs faster than its combined operation.
    """

    def __init__(self, bert: Bert) -> None:
        self._bert = bert

    def vector(self, ids: openvino.Node, length: openvino.Node) -> openvino.Node:
        """Return the vector of a text that is followed by padding."""
        bert = self._bert
        places = _places(ids)
        present = ops.convert(ops.less(places, length), "f32")
        mask = ops.multiply(ops.subtract(_scalar(1), present), _scalar(_MASKED_SCORE))
        tokens = self._embed(ids, places if bert.padding is None else _places_without(ids, bert.padding))
        for number in range(bert.layers):
            tokens = self._layer(tokens, mask, f"encoder.layer.{number}")
        pooled = ops.gather(tokens, _axis(0), _axis(1)) if bert.pooling == "cls" else _mean(tokens, present)
        return ops.normalize_l2(pooled, _axes(1), 1e-12, "max")

    def _embed(self, ids: openvino.Node, places: openvino.Node) -> openvino.Node:
        """Return the embeddings of the ids; ``places`` are the rows of the positions' table."""
        bert = self._bert
        words = bert.tensor("embeddings.word_embeddings.weight", (bert.vocabulary, bert.dimensions))
        positions = ops.gather(_constant(bert.position_embeddings()), places, _axis(0))
        tokens = ops.add(ops.gather(_constant(words), ids, _axis(0)), positions)
        return self._normalized(tokens, "embeddings.LayerNorm")

    def _layer(self, tokens: openvino.Node, mask: openvino.Node, name: str) -> openvino.Node:
        width = self._bert.dimensions
        joined = ops.reshape(self._attention(tokens, mask, name), _axes(0, 0, width), special_zero=True)
        attended = ops.add(self._linear(joined, f"{name}.attention.output.dense", width), tokens)
        attended = self._normalized(attended, f"{name}.attention.output.LayerNorm")
        inner = ops.gelu(self._linear(attended, f"{name}.intermediate.dense", None), "erf")
        outer = ops.add(self._linear(inner, f"{name}.output.dense", width), attended)
        return self._normalized(outer, f"{name}.output.LayerNorm")

    def _attention(self, tokens: openvino.Node, mask: openvino.Node, name: str) -> openvino.Node:
        """Return the heads' outputs, shape (1, tokens, heads, dimensions of a head)."""
        width = self._bert.dimensions
        query, key, value = (
            self._split(self._linear(tokens, f"{name}.attention.self.{part}", width))
            for part in ("query", "key", "value")
        )
        scale = _scalar((width // self._bert.heads) ** -0.5)
        scores = ops.multiply(ops.matmul(query, key, transpose_a=False, transpose_b=True), scale)
        shares = ops.softmax(ops.add(scores, mask), -1)
        heads = ops.matmul(shares, value, transpose_a=False, transpose_b=False)
        return ops.transpose(heads, _axes(0, 2, 1, 3))

    def _split(self, tokens: openvino.Node) -> openvino.Node:
        """Turn the shape (1, tokens, dimensions) into (1, heads, tokens, dimensions of a head)."""
        shape = _axes(0, 0, self._bert.heads, self._bert.dimensions // self._bert.heads)
        return ops.transpose(ops.reshape(tokens, shape, special_zero=True), _axes(0, 2, 1, 3))

    def _linear(self, inputs: openvino.Node, name: str, outputs: int | None) -> openvino.Node:
        bias = self._bert.tensor(f"{name}.bias", (outputs,))
        weight = self._bert.tensor(f"{name}.weight", (len(bias), None))
        product = ops.matmul(inputs, _constant(weight), transpose_a=False, transpose_b=True)
        return ops.add(product, _constant(bias))

    def _normalized(self, tokens: openvino.Node, name: str) -> openvino.Node:
        shape = (self._bert.dimensions,)
        scaled = ops.mvn(tokens, _axes(-1), True, self._bert.epsilon, "inside_sqrt")
        scaled = ops.multiply(scaled, _constant(self._bert.tensor(f"{name}.weight", shape)))
        return ops.add(scaled, _constant(self._bert.tensor(f"{name}.bias", shape)))


def _mean(tokens: openvino.Node, present: openvino.Node) -> openvino.Node:
    """Return the mean over the tokens that are present."""
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
    """Return a constant that shares the array's memory."""
    return ops.constant(np.ascontiguousarray(values), shared_memory=True)


def _scalar(value: float) -> openvino.Node:
    return ops.constant(np.float32(value))


def _axis(value: int) -> openvino.Node:
    return ops.constant(np.int64(value))


def _axes(*values: int) -> openvino.Node:
    return ops.constant(np.array(values, dtype=np.int64))
