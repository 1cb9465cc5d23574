"""The default embedder: a sentence-transformers model, all-MiniLM-L6-v2 unless another is set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from worker.embedding.base import Embeddings
from worker.embedding.recent import RecentVectors
from worker.embedding.tokenizing import PrefixTokenizer
from worker.errors import EmbeddingError

Precision = Literal["float32", "bfloat16"]
Truncation = Literal["standard", "sdk"]


@dataclass(frozen=True)
class Window:
    """How much of a text the model reads.

    Attributes:
        max_tokens: special tokens included.
        truncation: ``standard`` keeps the closing ``[SEP]`` of a text that is cut, as the model was trained
            and as ``SentenceTransformer.encode`` does; ``sdk`` drops it, as the SDK's tokenizer does.
    """

    max_tokens: int = 256
    truncation: Truncation = "standard"

    def cut(self, ids: list[int]) -> list[int]:
        """Return those of a text's ids that the model reads."""
        if len(ids) <= self.max_tokens:
            return ids
        if self.truncation == "sdk":
            return ids[: self.max_tokens]
        return [*ids[: self.max_tokens - 1], ids[-1]]


@dataclass(frozen=True)
class Transformer:
    """What an embedder needs of a model besides its forward pass.

    Attributes:
        dimensions: the length of the vectors.
        identity: :attr:`worker.embedding.base.Embedder.identity`.
        tokenizer: neither pads nor truncates; the JSON of a :class:`tokenizers.Tokenizer`.
    """

    dimensions: int
    identity: str
    tokenizer: str


class Forward(Protocol):
    """A model's forward pass over texts of equal length, which need no attention mask."""

    @property
    def precision(self) -> Precision:
        """The number format of the arithmetic."""
        ...

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Turn token ids, shape (texts, tokens), into unit vectors, shape (texts, dimensions).

        Called from several threads at once.
        """
        ...


class Runtime(Protocol):
    """What computes a model's forward pass."""

    @property
    def name(self) -> str:
        """The library and its version."""
        ...

    @property
    def transformer(self) -> Transformer:
        """The model."""
        ...

    @property
    def device(self) -> str:
        """Where it computes: ``cpu`` or ``cuda``."""
        ...

    @property
    def parallel(self) -> int:
        """From how many threads a forward pass is best called at once."""
        ...

    def forward(self, precision: Precision) -> Forward:
        """Return the forward pass in a precision, or in float32 where the device lacks it."""
        ...


class TransformerEmbedder:
    """Embeds texts with a transformer.

    Args:
        runtime: computes the vectors.
        window: how much of a text is read.
        precision: of the transformer's arithmetic.
        description: the model, for people.
    """

    def __init__(self, runtime: Runtime, window: Window, precision: Precision, description: str) -> None:
        self.description = description
        self.dimensions = runtime.transformer.dimensions
        self.identity = runtime.transformer.identity
        self.runtime = runtime.name
        self.device = runtime.device
        self.parallel = runtime.parallel
        self._window = window
        self._tokenizer = PrefixTokenizer(
            Tokenizer.from_str(runtime.transformer.tokenizer), window.max_tokens
        )
        self._forward = runtime.forward(precision)
        self._recent = RecentVectors()

    @property
    def precision(self) -> Precision:
        """The number format of the arithmetic."""
        return self._forward.precision

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts, those of equal length in one batch; an unpaired surrogate is read as U+FFFD."""
        try:
            ids = self._tokenizer.ids(texts)
            vectors, repeated = self._vectors([tuple(self._window.cut(row)) for row in ids])
        except Exception as error:
            raise EmbeddingError(f"{self.description} failed on a batch of {len(texts)}: {error}") from error
        truncated = sum(len(row) > self._window.max_tokens for row in ids)
        return Embeddings(vectors, truncated, repeated)

    def _vectors(self, windows: Sequence[tuple[int, ...]]) -> tuple[NDArray[np.float32], int]:
        """Return the windows' vectors, shape (windows, dimensions), and how many were not computed."""
        vectors = np.empty((len(windows), self.dimensions), dtype=np.float32)
        places: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, ids in enumerate(windows):
            places[ids].append(place)
        equally_long: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for ids, rows in places.items():
            recent = self._recent.find(ids)
            if recent is None:
                equally_long[len(ids)].append(ids)
            else:
                vectors[rows] = recent
        for batch in equally_long.values():
            for ids, vector in zip(batch, self._forward(np.array(batch, dtype=np.int64)), strict=True):
                vectors[places[ids]] = vector
                self._recent.add(ids, vector)
        return vectors, len(windows) - sum(map(len, equally_long.values()))
