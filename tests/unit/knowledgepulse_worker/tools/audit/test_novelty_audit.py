"""What the audit says of novelty: exactly by the ledger's vectors, else by an embedder within a tolerance."""

import pytest
from msgspec.structs import replace

from knowledgepulse_worker.tools.audit import source_index
from support.audited import counts, score_of, with_score


def test_accepts_embedding_noise_within_the_tolerance(worked, noisy):
    made = worked(30, embedder=noisy(1e-4))
    made.changelog = made.changelog[20:]

    assert made.audit(embedder=noisy(1e-4)).differing
    report = made.audit(embedder=noisy(1e-4), tolerance=1e-3)
    assert not report.differing
    # The first has nothing before it; the last six are compared with vectors that are all in the ledger.
    assert (report.novelty_exact, report.novelty_embedded) == (1 + 6, 23)


def test_bfloat16_widens_the_tolerance(worked, noisy):
    made = worked(30, embedder=noisy(3e-4, precision="bfloat16"))
    made.changelog.clear()

    assert not made.audit(embedder=noisy(3e-4, precision="bfloat16")).differing
    assert made.audit(embedder=noisy(3e-4)).differing


def test_the_tolerance_does_not_apply_to_the_ledgers_vectors(worked, noisy):
    made = worked(9, embedder=noisy(1e-3))
    novelty = score_of(made.outputs[8])["novelty"]
    made.outputs[8] = with_score(made.outputs[8], novelty=novelty + 1e-8)

    assert [d.offset for d in made.audit(tolerance=1.0).differing] == [8]


def test_reports_decisions_that_an_embedding_cannot_confirm(worked):
    made = worked(9)
    made.changelog.clear()
    near = [
        record.offset
        for record, output in zip(made.raw, made.outputs, strict=True)
        if record.offset and abs(score_of(output)["score"] - 0.45) <= 0.1
    ]
    assert 0 < len(near) < 8

    assert made.audit(embedder=made.embedder, tolerance=0.1).near_threshold == near


def test_without_an_embedder_novelty_is_unaudited_while_a_vector_is_missing(worked):
    made = worked(12)
    del made.changelog[3]

    # The record itself, and the four that were compared with it.
    assert counts(made.audit()) == {"novelty_unaudited": {"no_vector": 5}}
    assert counts(made.audit(embedder=made.embedder)) == {"novelty_embedded": 5}


def test_novelty_after_a_trimmed_start_is_unaudited(worked):
    made = worked(20)
    made.raw, made.outputs, made.changelog = made.raw[10:], made.outputs[10:], made.changelog[10:]

    report = made.audit(first=10, embedder=made.embedder)

    assert counts(report) == {"novelty_unaudited": {"trimmed": 4}}
    assert report.novelty_exact == 6


def test_compacted_records_are_still_in_the_cache(worked):
    made = worked(20)
    del made.raw[7]

    assert counts(made.audit()) == {"unknown": 1}
    del made.changelog[7]
    assert counts(made.audit(embedder=made.embedder)) == {"unknown": 1, "novelty_unaudited": {"no_vector": 4}}


def test_scores_after_a_rewind_may_differ(worked, noisy, monkeypatch):
    """Its scores may differ from those of the first run, which had the whole cache."""
    monkeypatch.setattr(source_index, "_FORMER_REPEATS", 8)
    made = worked(24, embedder=noisy(1e-3))
    made.restart(cut=True)
    made.work(since=10)

    report = made.audit()

    assert report.rescored == report.repeated == 14
    assert not report.differing
    assert report.novelty_exact == 10
    assert report.novelty_unaudited == {"rewind": 14}

    made.publish(6)
    made.work()
    assert made.audit().novelty_exact == 16
    made.outputs[-1] = replace(made.outputs[-1], value=b"{}")
    assert [d.offset for d in made.audit().differing] == [29]


@pytest.mark.parametrize("again_from", [None, 20, 23, 24, 26])
def test_scores_of_records_that_replaced_others_may_differ(worked, again_from):
    """Unclean elections replaced them; the ledger had lost the vectors that the lost records replaced.

    The second election was taken for the first, and the scores after it for wrong ones.
    """
    made = worked(24)
    elections = [18] if again_from is None else [18, again_from]
    for epoch, first in enumerate(elections, start=1):
        del made.raw[first:]
        made.publish(10, seed="other" + "!" * epoch, epoch=epoch)
        made.restart(cut=True)
        made.work(since=first)

    report = made.audit()

    assert not report.differing
    assert report.novelty_unaudited == {"rewind": min(elections[-1], 22) + 4 - 18}
    if again_from is None:
        assert (report.unknown, report.novelty_exact) == (6, 24)


def test_another_model_starts_with_an_empty_cache(worked, noisy):
    made = worked(10)
    made.restart(noisy(0, identity="second"))
    made.publish(10)
    made.work()

    assert score_of(made.outputs[10])["nearest"] is None
    assert counts(made.audit()) == {}

    made.changelog = made.changelog[5:]
    # Those without an entry are taken to be of the model of the oldest entry.
    report = made.audit(embedder=noisy(0, identity="second"))
    assert counts(report) == {"novelty_unaudited": {"other_model": 8}}


@pytest.mark.parametrize(("text", "differing"), [("agent", False), ("sdk", True)])
def test_novelty_is_recomputed_from_the_text_that_the_settings_choose(worked, text, differing):
    made = worked(10, embedding={"text": "agent"})
    made.changelog.clear()
    embedding = made.settings.embedding.model_copy(update={"text": text})
    made.settings = made.settings.model_copy(update={"embedding": embedding})

    report = made.audit(embedder=made.embedder)

    assert report.novelty_embedded == 9
    assert bool(report.differing) == differing


def test_without_an_embedding_novelty_is_unaudited(worked):
    made = worked(10, embedding={"backend": "none"})
    assert counts(made.audit()) == {}
    made.changelog.clear()
    assert counts(made.audit()) == {}

    made.outputs[4] = with_score(made.outputs[4], novelty=0.6)

    assert [d.offset for d in made.audit().differing] == [4]


def test_the_ttl_applies_to_record_timestamps(stream):
    made = stream(cache={"ttl": 2.0})
    made.publish(8)
    made.raw = [replace(r, timestamp_ms=r.timestamp_ms - 1500 * (r.offset % 3)) for r in made.raw]
    made.work()
    assert counts(made.audit()) == {}
    made.settings = made.settings.model_copy(
        update={"cache": made.settings.cache.model_copy(update={"ttl": None})}
    )
    assert made.audit().differing


def test_ignores_vectors_of_another_length(stream, worked):
    made = worked(10)
    made.settings = stream(cache={"dimensions": 16}).settings

    assert counts(made.audit()) == {"novelty_unaudited": {"no_vector": 9}}


def test_the_nearest_traces_id_may_be_truncated(stream):
    made = stream()
    made.publish(6, seed="x" * 300)
    made.work()

    assert any(len(score_of(output)["nearest"] or "") == 200 for output in made.outputs)
    assert made.audit().differing == []
