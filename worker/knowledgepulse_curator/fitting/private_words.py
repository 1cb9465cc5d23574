"""Words that name a person or a place on their machine, by the rules of the SDK's cleaner.

A policy keeps its strongest words for people to read, and whoever reads the policy reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from knowledgepulse_worker.redaction.sdk import clean_text
from knowledgepulse_worker.scoring import Content, ScoredRecord
from knowledgepulse_worker.scoring.words import words_of

_FOLDERS = {b"home", b"users"}
"""The folders that hold a folder with the name of each user."""


def private_words(records: Iterable[ScoredRecord]) -> set[bytes]:
    """Return the words that the cleaner takes out of more traces than it leaves them in.

    It reads the shortened texts. Beyond these, only the distinct words are known, in their order: there, a
    word after the folder of users counts as taken out.
    """
    taken, left = Counter[bytes](), Counter[bytes]()
    for record in records:
        words = frozenset(_words(record.content, cleaned=False))
        kept = frozenset(_words(record.content, cleaned=True))
        left.update(kept)
        taken.update((words - kept) | (_users(record) - kept))
    return {word for word, number in taken.items() if number > left[word]}


def _words(content: Content | None, *, cleaned: bool) -> Iterator[bytes]:
    if content is not None:
        for text in (content.objective, *content.steps, content.result):
            yield from words_of(clean_text(text) if cleaned else text)


def _users(record: ScoredRecord) -> set[bytes]:
    """Return the words that follow a folder of users."""
    words = ((record.counts and record.counts.words) or "").encode("utf-8", "replace").split()
    return {word for folder, word in pairwise(words) if folder in _FOLDERS}
