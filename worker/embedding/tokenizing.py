"""Reading no more of a text than the model's window needs.

A tokenizer reads a whole text before it is cut to the window: of a median trace ten times too much.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

# Immediately before one of these, BERT's basic tokenizer ends a word whatever follows, so what comes before
# has the same tokens with and without the rest: white space that it knows, CJK ideographs, and punctuation.
# Not `]`, which closes a special token, and not what Python takes for white space but BERT deletes, which
# joins words.
_BOUNDARY = re.compile(
    r"[ \t\n\r"
    r"\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002B73F\U0002B740-\U0002B81F\U0002B820-\U0002CEAF"
    r"\uF900-\uFAFF\U0002F800-\U0002FA1F"
    r"!-/:-@\[\\^-`{-~"
    r"、。！？，：；「」]"  # noqa: RUF001 - these very characters are meant
)
_CHARACTERS_PER_TOKEN = 5
"""How much of a text is tried first: the real traces have 2.5 to 4.8."""


class PrefixTokenizer:
    """Gives the ids that a whole text would begin with.

    Args:
        tokenizer: neither pads nor truncates. One that is not BERT's gets whole texts.
        max_tokens: the window, special tokens included.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._cuts = isinstance(tokenizer.normalizer, BertNormalizer) and isinstance(
            tokenizer.pre_tokenizer, BertPreTokenizer
        )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's ids, special tokens included.

        They are all of the text's ids when these fit the window; else more than fit, of which the first
        ``max_tokens - 1`` and the last (the closing special token) are the whole text's.
        """
        characters = _CHARACTERS_PER_TOKEN * self._max_tokens
        encodings = self._encode([self._prefix(text, characters) for text in texts])
        return [self._long_enough(text, one, characters) for text, one in zip(texts, encodings, strict=True)]

    def _long_enough(self, text: str, encoding: Encoding, characters: int) -> list[int]:
        while len(encoding.ids) <= self._max_tokens and len(self._prefix(text, characters)) < len(text):
            characters *= 2
            [encoding] = self._encode([self._prefix(text, characters)])
        return list(encoding.ids)

    def _prefix(self, text: str, characters: int) -> str:
        boundary = _BOUNDARY.search(text, characters) if self._cuts else None
        return text if boundary is None else text[: boundary.start()]

    def _encode(self, texts: list[str]) -> list[Encoding]:
        return list(self._tokenizer.encode_batch_fast([_well_formed(text) for text in texts]))


def _well_formed(text: str) -> str:
    """Return the text with unpaired surrogates replaced, which the tokenizer would refuse."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
