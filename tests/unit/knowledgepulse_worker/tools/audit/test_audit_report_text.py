"""Terminal and JSON output of a report."""

import json

import pytest

from knowledgepulse_worker.tools.audit import AuditReport, Difference, PartitionReport
from knowledgepulse_worker.tools.audit.audit_report_text import MAX_DETAILS, words_of
from knowledgepulse_worker.tools.terminal.reports import print_parts


@pytest.fixture
def shown(capsys):
    """Return a function that returns the terminal output of a report."""

    def print_it(report):
        print_parts(*words_of(report))
        return capsys.readouterr().out

    return print_it


REPORT = AuditReport(
    "raw-traces",
    [
        PartitionReport(
            0, records=10, outputs=9, missing=[3], repeated=1, repeats=[7], near_threshold=[4, 5]
        ),
        PartitionReport(
            1,
            records=20,
            differing=[Difference(offset, "novelty is 1, recomputed 0") for offset in range(20)],
            without_entry=[8, 9],
            novelty_exact=5,
            novelty_unaudited={"trimmed": 7},
            unknown=2,
            deleted=[(5, 5), (7, 11)],
        ),
    ],
    foreign=1,
)


def test_terminal_output_has_totals_notes_and_the_first_defects(shown):
    text = shown(REPORT)

    assert ["all", "30", "0", "1", "1", "20", "2", "5"] in [line.split() for line in text.splitlines()]
    assert "2 records scored too close" in text
    assert "7 records had a novelty that could not be audited: earlier records" in text
    assert "3 outputs did not belong to an existing record of raw-traces" in text
    assert "6 offsets had no output when deleted from raw-traces" in text
    assert ": 1/5, 1/7 to 11" in text
    assert "missing: raw-traces/0/3 has no output" in text
    assert "repeated: raw-traces/0/7 has several outputs" in text
    assert text.count("differs: raw-traces/1/") == MAX_DETAILS - 2
    assert "and 14 more" in text
    assert "policy" not in text, "the note is omitted if the count is zero"


def test_what_is_missing_in_a_compacted_topic_may_have_been_removed(shown):
    """47 outputs were missing, and nothing said that brokers had removed them."""
    report = AuditReport("raw-traces", [PartitionReport(0, missing=[3])], compacted=["contribute"])

    assert "what is missing may have been compacted away: contribute with cleanup.policy=compact" in " ".join(
        shown(report).split()
    )
    assert "compact" not in shown(AuditReport("raw-traces", [PartitionReport(0)], compacted=["contribute"]))


def test_json_output_is_complete():
    data = json.loads(json.dumps(REPORT.as_dict()))

    assert (data["ok"], data["missing"], data["differing"], data["unknown"]) == (False, 1, 20, 3)
    assert data["partitions"][1]["differing"][19] == {"offset": 19, "what": "novelty is 1, recomputed 0"}
    assert data["partitions"][1]["novelty_unaudited"] == {"trimmed": 7}
    assert data["partitions"][0]["missing"] == [3]
    assert (data["without_entry"], data["partitions"][1]["without_entry"]) == (2, [8, 9])
    assert (data["deleted"], data["partitions"][1]["deleted"]) == (6, [[5, 5], [7, 11]])


def test_an_output_without_an_entry_is_a_failure(shown):
    report = AuditReport("raw-traces", [PartitionReport(3, records=9, without_entry=[7])])

    assert not report.ok
    assert "without entry: raw-traces/3/7 has an output, but no entry in the changelog" in shown(report)
