"""Records of the former release are read as it meant them, and it can read the records of this one."""

import json

import msgspec
import pytest

from knowledgepulse_worker.kafka.policy_topic import _complete, _kept_policy
from knowledgepulse_worker.policy import DomainPolicy, LearnedValue, Policy, Term, is_digest_of
from knowledgepulse_worker.records.ledger_records import (
    DomainScores,
    decode_entry,
    encode_entry,
    encode_scores,
    read_record,
    scores_key,
)
from knowledgepulse_worker.records.score_header import decode_score, encode_score
from knowledgepulse_worker.scoring import LastScores, NoFactsError
from knowledgepulse_worker.tools.common.scored_records import read_line
from support.traces import DATA

FORMER = json.loads((DATA / "releases" / "0.2.0.json").read_bytes())
LINES = (DATA / "releases" / "0.2.0.scored.jsonl").read_bytes().splitlines()
LEARNED = Policy(
    domains={
        "customer_service": DomainPolicy(
            learned=LearnedValue(
                share=0.5,
                facts_version=1,
                intercept=0.1,
                terms={"steps": Term(mean=2, deviation=1, weight=-0.5, clip=3)},
            )
        )
    }
)


class FormerScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The former release's type of ``kp-score``."""

    score: float
    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float
    overrides: tuple[str, ...]
    domain: str
    threshold: float
    nearest: str | None
    withheld: str | None = None


class FormerLastScores(msgspec.Struct, array_like=True, frozen=True):
    """The type of last scores in release 0.4.0."""

    scale: str
    count: int
    scores: list[float]


class Kept:
    """A record of the policies' topic."""

    timestamp = 1

    def __init__(self, key, value):
        self.key, self.value = key, value


@pytest.mark.parametrize("text", FORMER["scores"])
def test_a_former_score_has_no_learned_value_and_is_written_alike(text):
    score = decode_score(text.encode())

    assert score.learned is None
    assert encode_score(score).decode() == text


@pytest.mark.parametrize("text", FORMER["entries"])
def test_a_former_entry_is_usable_and_written_alike(text):
    entry = decode_entry(bytes.fromhex(text))

    assert read_record(b"7", bytes.fromhex(text)) == entry
    assert encode_entry(entry).hex() == text


@pytest.mark.parametrize("kept", FORMER["policies"])
def test_a_former_policy_is_known_by_its_digest(kept):
    """Else every output of the former release would be of an unknown policy."""
    assert is_digest_of(Policy.model_validate(kept["settings"]), kept["key"])
    assert is_digest_of(_kept_policy(Kept(kept["key"].encode(), kept["value"].encode())).policy, kept["key"])
    complete = _complete(Policy.model_validate(kept["settings"]))
    assert complete.model_dump_json(exclude_none=True, exclude_unset=True) == kept["value"]


def test_a_former_line_is_rescored_unless_that_needs_what_it_lacks():
    records = [read_line(f"scored.jsonl:{number}", line) for number, line in enumerate(LINES, 1)]

    assert [record.under(Policy()) for record in records] == [record.score for record in records]
    assert {record.task_domain for record in records} == {"customer_service"}
    for record in records:
        with pytest.raises(NoFactsError):
            record.under(LEARNED)


def test_the_former_release_reads_a_score_with_a_learned_value():
    """A rolling upgrade reads the ledgers of both; the former one skips the members that it does not know."""
    score = msgspec.structs.replace(decode_score(FORMER["scores"][0].encode()), learned=0.25)

    former = msgspec.json.decode(encode_score(score), type=FormerScore)

    assert former.score == score.quality_score


def test_last_scores_without_agents_are_those_of_release_0_4():
    """A rolling upgrade reads the ledgers of both, unless the policy has a cap."""
    last, former = LastScores("scale", 3, [0.25, 0.5]), FormerLastScores("scale", 3, [0.25, 0.5])
    stored = encode_scores(DomainScores(7, b"", "model", last))
    of_former = msgspec.msgpack.encode((7, b"", "model", former, 1))

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(last), type=FormerLastScores) == former
    assert read_record(scores_key("code"), of_former) == read_record(scores_key("code"), stored)


def test_a_member_of_a_later_release_is_kept_in_an_entry_and_skipped_in_a_score():
    """The audit and the explanation of a score read the bytes of an entry, whatever they hold."""
    entry = decode_entry(bytes.fromhex(FORMER["entries"][0]))
    later = entry.score[:-1] + b',"later":1}'

    changed = msgspec.structs.replace(entry, score=later)

    assert read_record(b"7", encode_entry(changed)).score == later
    assert decode_score(later) == decode_score(entry.score)


@pytest.mark.parametrize(
    "changes",
    [
        {"later": 1},
        {"domains": {"code": {"later": 1}}},
        {"domains": {"code": {"learned": {"facts_version": 99}}}},
    ],
)
def test_a_policy_of_a_later_release_is_skipped_in_the_topic_and_refused_in_the_settings(changes):
    """What this release does not know may change a score, so it does not score by such a policy."""
    value = json.dumps({"threshold": 0.5} | changes)

    with pytest.raises(ValueError, match="not a policy of this release"):
        _kept_policy(Kept(b"0123456789ab", value.encode()))


def test_a_kept_policy_with_a_learned_value_is_the_same_policy():
    value = _complete(LEARNED).model_dump_json(exclude_none=True).encode()

    assert _kept_policy(Kept(LEARNED.digest.encode(), value)).policy.digest == LEARNED.digest
