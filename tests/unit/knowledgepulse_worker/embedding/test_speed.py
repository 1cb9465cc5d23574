"""A worker says how long a text takes to embed here, and whether the budget allows that."""

import pytest

from knowledgepulse_worker.embedding import LexicalEmbedder, Speed, measure


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0007, "a text that fills the window takes 0.7 ms, 1,429 a second on a core"),
        (0.05, "a text that fills the window takes 50 ms, 20 a second on a core"),
        (0.078, "which leaves little room in the budget of 100 ms; a smaller embedding.max_tokens or "),
        (0.1, "which leaves little room in the budget of 100 ms;"),
        (1.237, "takes 1,237 ms, which exceeds the budget of 100 ms; a smaller embedding.max_tokens or "),
    ],
)
def test_the_budget_is_compared_with_the_time_of_a_text(seconds, said):
    assert said in str(Speed(seconds, 0.1))
    assert Speed(seconds, 0.1).exceeds_budget == (seconds > 0.1)


def test_the_time_is_that_of_a_text_that_fills_any_window_and_was_not_embedded_before():
    texts = []

    class Embedder(LexicalEmbedder):
        def embed(self, batch):
            texts.extend(batch)
            return super().embed(batch)

    speed = measure(Embedder(), 0.1)

    assert speed.seconds > 0
    assert len(texts) == len({text[:10] for text in texts})
    assert all(len(text.split()) > 4096 for text in texts)
