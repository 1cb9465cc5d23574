"""A report as people and machines read it."""

import io
import json

import pytest
from rich.console import Console

from worker.audit import Difference, PartitionReport, Report
from worker.audit.show import DETAILS, show


@pytest.fixture
def shown():
    """Returns what is printed of a report."""

    def print_it(report):
        console = Console(file=io.StringIO(), width=100)
        show(report, console)
        return console.file.getvalue()

    return print_it


REPORT = Report(
    "raw-traces",
    [
        PartitionReport(0, records=10, outputs=9, missing=[3], repeated=1, near_threshold=[4, 5]),
        PartitionReport(
            1,
            records=20,
            differing=[Difference(offset, "novelty is 1, recomputed 0") for offset in range(20)],
            novelty_exact=5,
            novelty_unaudited={"trimmed": 7},
            unknown=2,
            deleted=[(5, 5), (7, 11)],
        ),
    ],
    foreign=1,
)


def test_a_person_reads_the_sums_what_was_not_audited_and_the_first_of_what_is_wrong(shown):
    text = shown(REPORT)

    assert ["all", "30", "0", "1", "1", "20", "5"] in [line.split() for line in text.splitlines()]
    assert "2 records have a score too near" in text
    assert "7 records have a novelty that could not be audited: what came before" in text
    assert "3 outputs come from no record of raw-traces" in text
    assert "6 offsets are gone from raw-traces without an output" in text
    assert ": 1/5, 1/7 to 11" in text
    assert "missing: raw-traces/0/3 has no output" in text
    assert text.count("differs: raw-traces/1/") == DETAILS - 1
    assert "and 11 more" in text
    assert "policy" not in text, "what did not happen is not told"


def test_a_machine_reads_all_of_it():
    told = json.loads(json.dumps(REPORT.as_dict()))

    assert (told["ok"], told["missing"], told["differing"], told["unknown"]) == (False, 1, 20, 3)
    assert told["partitions"][1]["differing"][19] == {"offset": 19, "what": "novelty is 1, recomputed 0"}
    assert told["partitions"][1]["novelty_unaudited"] == {"trimmed": 7}
    assert told["partitions"][0]["missing"] == [3]
    assert (told["deleted"], told["partitions"][1]["deleted"]) == (6, [[5, 5], [7, 11]])


def test_only_what_is_missing_or_differs_is_wrong():
    odd = PartitionReport(0, records=3, waiting=1, repeated=2, unknown=4, other_policy=1, rescored=1)
    odd.deleted.append((0, 4))
    assert Report("raw-traces", [odd], foreign=1).ok
