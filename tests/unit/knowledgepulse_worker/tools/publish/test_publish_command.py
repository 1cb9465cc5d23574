"""`kp-worker publish` says how to go on after what stopped it."""

import json

import pytest
from click.testing import CliRunner

from knowledgepulse_kafka.errors import DeliveryError, TooLargeError
from knowledgepulse_worker.cli import entry
from knowledgepulse_worker.tools.publish import asking, publication


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


class TestFolder:
    """Nobody named each run of a folder, and the brokers are where others read."""

    @pytest.fixture
    def sent(self, monkeypatch):
        lines = []
        monkeypatch.setattr(publication, "publish_lines", lambda given, *_: lines.extend(given))
        return lines

    @pytest.fixture
    def folder(self, tmp_path):
        for number in range(2):
            chat = [{"role": "user", "content": f"Why {number}?"}, {"role": "assistant", "content": "So"}]
            (tmp_path / f"{number}.json").write_text(json.dumps(chat))
        return tmp_path

    def run(self, folder, *options, **others):
        return CliRunner().invoke(entry.main, ["publish", str(folder), *options], **others)

    def test_what_a_folder_holds_is_shown_and_needs_an_answer(self, folder, sent, monkeypatch):
        monkeypatch.setattr(asking, "has_terminal", lambda: True)

        refused = self.run(folder, input="n\n")

        assert refused.exit_code == 1
        assert sent == []
        assert "2 traces would be published to raw-traces at localhost:9092, 0.0 MB:\n  openai: 2, " in (
            refused.stderr
        )
        assert self.run(folder, input="y\n").exit_code == 0
        assert [json.loads(line)["task"]["objective"] for line in sent] == ["Why 0?", "Why 1?"]

    def test_without_a_terminal_a_folder_needs_yes(self, folder, sent):
        refused = self.run(folder)

        assert "without a terminal to ask on, the runs of a folder or a database need --yes" in refused.stderr
        assert (refused.exit_code, sent) == (1, [])
        assert self.run(folder, "--yes").exit_code == 0
        assert len(sent) == 2

    def test_a_file_that_somebody_named_needs_no_answer(self, folder, sent):
        assert self.run(folder / "0.json", "--from", "auto").exit_code == 0
        assert len(sent) == 1
