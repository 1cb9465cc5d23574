"""The letters of a text are counted by script."""

import json

import pytest
from languages.languages import PARAPHRASES

from knowledgepulse_worker.embedding.letters import READ_CHARACTERS, Letters, letters_of

TASKS = [json.loads(line) for line in PARAPHRASES.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("Fix the test in 3 files: a_b.py", Letters(21, 0)),
        ("", Letters(0, 0)),
        ("Größe, élève, señor, Đà Nẵng, \uff21\uff22\uff23", Letters(24, 0)),
        ("Исправь тест", Letters(0, 11)),
        ("أصلح الاختبار", Letters(0, 12)),
        ("テストを直す", Letters(0, 6)),
        ("pytest 를 실행해", Letters(6, 4)),
        ("2 · 3_4 → 5", Letters(0, 0)),
    ],
)
def test_letters_are_counted_by_script(text, letters):
    assert letters_of(text) == letters


@pytest.mark.parametrize(
    ("language", "is_latin"), [("en", 1), ("de", 1), ("fr", 1), ("ja", 0), ("ko", 0), ("zh", 0)]
)
def test_tasks_of_agents_are_told_apart_by_script(language, is_latin):
    latin, other = map(sum, zip(*(letters_of(task[language][0]) for task in TASKS), strict=True))

    assert (latin > other) == is_latin


def test_only_the_beginning_is_read():
    assert (
        letters_of("я" * READ_CHARACTERS + "b")
        == letters_of("я" * 5 * READ_CHARACTERS)
        == (0, READ_CHARACTERS)
    )
