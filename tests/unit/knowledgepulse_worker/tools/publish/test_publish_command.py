"""`kp-worker publish` says how to go on after what stopped it."""

import pytest
from click.testing import CliRunner

from knowledgepulse_kafka.errors import DeliveryError, TooLargeError
from knowledgepulse_worker.cli import entry
from knowledgepulse_worker.tools.publish import publication


@pytest.fixture
def publish(monkeypatch, tmp_path):
    """Publish files of one record each, until an error; return what is printed."""

    def run(error, *options, sent, confirmed):
        def publish_lines(_lines, publisher, _limit):
            publisher.published.records, publisher.published.confirmed = sent, confirmed
            raise error

        monkeypatch.setattr(publication, "publish_lines", publish_lines)
        file = tmp_path / "traces.jsonl"
        file.write_text('{"id": "kp:trace:1"}\n')
        return CliRunner().invoke(entry.main, ["publish", str(file), *options]).output

    return run


TOO_LARGE = TooLargeError("raw-traces: MessageSizeTooLargeError")


@pytest.mark.parametrize("sent", [2, 3])
@pytest.mark.parametrize(("options", "skip"), [([], 3), (["--skip", "5"], 8)])
def test_a_record_that_is_too_large_is_left_out_by_the_next_run(publish, options, skip, sent):
    """The next run was told to stop at the same record."""
    printed = publish(TOO_LARGE, *options, sent=sent, confirmed=2)

    told, *rest = printed.splitlines()
    assert told == f"record {skip} is too large; continue after it with --skip {skip}"
    assert "may or may not" not in "".join(rest)


@pytest.mark.parametrize("sent", [0, 1])
def test_the_first_record_may_be_too_large(publish, sent):
    assert "record 1 is too large; continue after it with --skip 1\n" in publish(
        TOO_LARGE, sent=sent, confirmed=0
    )


@pytest.mark.parametrize("error", [TOO_LARGE, DeliveryError("raw-traces: refused")])
def test_records_that_are_not_confirmed_are_published_again(publish, error):
    printed = publish(error, sent=4, confirmed=1)

    assert "the first 1 records are confirmed; continue with --skip 1" in printed
    assert "the next 3 may or may not have been published" in printed
