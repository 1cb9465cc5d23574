"""Scored traces from files."""

from codecs import BOM_UTF8

import pytest

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.scored_files import read_files
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line


@pytest.fixture
def scored_lines(real_traces):
    scorer = make_scorer(Settings(), None)
    return [score_line(line, scorer, 10**7).to_json("none").encode() for line in real_traces[:5]]


def read(*paths, make_scorer=Scorer):
    return list(read_files(paths, make_scorer, "none", 10**7))


def test_scores_raw_traces_and_reads_scored_ones(tmp_path, real_traces, scored_lines):
    raw, scored = tmp_path / "raw.jsonl", tmp_path / "scored.jsonl"
    raw.write_bytes(b"\n".join(real_traces[:5]))
    scored.write_bytes(BOM_UTF8 + b"\n\n".join(scored_lines) + b"\n")

    records = read(raw, scored)

    assert [one.score for one in records[:5]] == [one.score for one in records[5:]]
    assert {one.embedder for one in records} == {"none"}
    assert records[1].source == f"{raw}:2"
    assert records[6].source == f"{scored}:3"


def test_scored_lines_need_no_embedder(tmp_path, scored_lines):
    file = tmp_path / "scored.jsonl"
    file.write_bytes(b"\n".join(scored_lines))

    assert len(read(file, make_scorer=lambda: pytest.fail("nothing is to be scored"))) == 5


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_rejects_an_empty_file(tmp_path, content):
    file = tmp_path / "empty.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}: is empty"):
        read(file)


@pytest.mark.parametrize("cut", [1, 40, -3])
def test_the_error_for_a_truncated_file_names_the_line(tmp_path, scored_lines, cut):
    file = tmp_path / "half.jsonl"
    file.write_bytes(scored_lines[0] + b"\n" + scored_lines[1][:cut])
    with pytest.raises(InputError, match=f"{file}:2: not output of `kp-worker score`: .*truncated"):
        read(file)


def test_the_error_for_a_truncated_raw_file_names_the_line(tmp_path, real_traces):
    file = tmp_path / "half.jsonl"
    file.write_bytes(real_traces[0] + b"\n" + real_traces[1][:100])
    with pytest.raises(InputError, match=f"{file}:2: not a trace: "):
        read(file)


@pytest.mark.parametrize("content", [b"{}", b"[]", b"3", b"text", b"\xff", b'{"quality'])
def test_rejects_a_file_in_another_format(tmp_path, content):
    file = tmp_path / "other.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}:1: neither output"):
        read(file)


def test_rejects_a_score_out_of_range(tmp_path, scored_lines):
    file = tmp_path / "scored.jsonl"
    file.write_bytes(scored_lines[0].replace(b'"complexity": 1', b'"complexity": 2'))
    with pytest.raises(InputError, match=r"`float` <= 1.0 - at `\$.complexity`"):
        read(file)


def test_rejects_a_directory(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read(tmp_path)
