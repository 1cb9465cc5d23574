"""Tokenize only as much of a text as the model's window needs.

A tokenizer reads the whole text before it truncates, which is ten times too much for a median trace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from knowledgepulse_worker.errors import ModelError

TruncationMode = Literal["standard", "sdk"]

# BERT's basic tokenizer always ends a word before these characters (white space, CJK ideographs and
# punctuation), so the text before them has the same tokens without the rest. The pattern omits `]`, which
# closes a special token, and the characters that Python treats as white space but that BERT deletes, which
# joins words.
_BOUNDARY = re.compile(
    r"[ \t\n\r"
    r"\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002B73F\U0002B740-\U0002B81F\U0002B820-\U0002CEAF"
    r"\uF900-\uFAFF\U0002F800-\U0002FA1F"
    r"!-/:-@\[\\^-`{-~"
    r"、。！？，：；「」]"  # noqa: RUF001 - these characters are meant
)
_CHARACTERS_PER_TOKEN = 5
"""Length of the first prefix to try; real traces have 2.5 to 4.8 characters per token."""


@dataclass(frozen=True)
class Window:
    """The part of a text that a model reads.

    Attributes:
        max_tokens: the number of tokens, including special tokens.
        truncation: ``standard`` keeps the closing ``[SEP]`` of a truncated text, as in the model's training
            and ``SentenceTransformer.encode``; ``sdk`` drops it, like the SDK's tokenizer.
    """

    max_tokens: int = 256
    truncation: TruncationMode = "standard"

    def truncate(self, ids: list[int]) -> list[int]:
        """Truncate a text's ids to the window."""
        if len(ids) <= self.max_tokens:
            return ids
        if self.truncation == "sdk":
            return ids[: self.max_tokens]
        return [*ids[: self.max_tokens - 1], ids[-1]]

    def require(self, positions: int, model: str) -> None:
        """Raise :class:`ModelError` if a model reads fewer tokens."""
        if self.max_tokens > positions:
            raise ModelError(
                f"embedding.max_tokens: got {self.max_tokens}; {model} reads at most {positions}"
            )


def read_tokenizer(folder: Path, vocabulary: int) -> Tokenizer:
    """Return a model's tokenizer, set to neither pad nor truncate.

    Raises:
        ModelError: the tokenizer's file is missing or damaged, or has ids that the model's vocabulary lacks.
    """
    file = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(file.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ModelError(f"embedding.model: {file} cannot be read: {error.strerror}") from error
    except Exception as error:  # the library has no class of its own
        raise ModelError(f"embedding.model: {file} is not a tokenizer: {error}") from error
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= vocabulary:
        raise ModelError(
            f"embedding.model: {file} has the token id {largest}; config.json has room for {vocabulary} ids"
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class PrefixTokenizer:
    """Tokenizes a prefix of a text, with the same result as for the whole text.

    Args:
        tokenizer: must neither pad nor truncate; a tokenizer other than BERT's gets whole texts.
        max_tokens: the window, including special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._cuts = isinstance(tokenizer.normalizer, BertNormalizer) and isinstance(
            tokenizer.pre_tokenizer, BertPreTokenizer
        )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's ids, including special tokens.

        If the ids fit the window, they are complete. Otherwise there are more ids than fit, and the first
        ``max_tokens - 1`` and the last (the closing special token) equal those of the whole text.
        """
        characters = _CHARACTERS_PER_TOKEN * self._max_tokens
        encodings = self._encode([self._prefix(text, characters) for text in texts])
        return [
            self._long_enough(text, encoding, characters)
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _long_enough(self, text: str, encoding: Encoding, characters: int) -> list[int]:
        while len(encoding.ids) <= self._max_tokens and len(self._prefix(text, characters)) < len(text):
            characters *= 2
            [encoding] = self._encode([self._prefix(text, characters)])
        return list(encoding.ids)

    def _prefix(self, text: str, characters: int) -> str:
        boundary = _BOUNDARY.search(text, characters) if self._cuts else None
        return text if boundary is None else text[: boundary.start()]

    def _encode(self, texts: list[str]) -> list[Encoding]:
        return list(self._tokenizer.encode_batch_fast([well_formed(text) for text in texts]))


def well_formed(text: str) -> str:
    """Return the text with unpaired surrogates replaced, which the tokenizer rejects."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
