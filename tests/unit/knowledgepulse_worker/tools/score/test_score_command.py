"""`kp-worker score`: what a person reads, and what a program reads."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker import score_traces
from knowledgepulse_worker.errors import InvalidRecordError, MissingExtraError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import excerpt
from knowledgepulse_worker.tools.score import scoring
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line
from knowledgepulse_worker.tools.score.score_command import score
from knowledgepulse_worker.tools.score.score_report import report_of
from support.memory import traced


@pytest.fixture
def traces(tmp_path, real_traces):
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join(real_traces) + b"\n")
    return file


def run(*arguments, **options):
    return CliRunner().invoke(score, [*map(str, arguments), "--embedder", "lexical"], **options)


def test_a_person_sees_the_best_first_and_what_a_policy_and_a_share_of_a_fifth_would_pass(traces):
    said = run(traces, "--table").stdout
    lines = [json.loads(line) for line in run(traces).stdout.splitlines()]
    ordered = sorted(lines, key=lambda line: -line["quality_score"])
    by_domain = {
        line["domain"]: [each for each in ordered if each["domain"] == line["domain"]] for line in lines
    }
    fifth = [line for each in by_domain.values() for line in each[: round(len(each) / 5)]]

    table, report, why = said.split("\n\n", 2)
    rows = [line.split() for line in table.splitlines()[2:22]]
    assert [row[1] for row in rows] == [f"{line['quality_score']:.4f}" for line in ordered[:20]]
    assert [row[2] == "yes" for row in rows] == [line in fifth for line in ordered[:20]]
    assert table.endswith("and 134 more, which --json prints")
    passed = sum(line["decision"] == "contribute" for line in lines)
    assert f"no share or threshold is set; {passed} would pass by the SDK's threshold 0.75\n" in report
    assert f"\n{len(fifth)} would pass by share = 0.2" in report
    best = max(range(len(lines)), key=lambda at: lines[at]["quality_score"])
    assert why.startswith(f"the best is {traces.name}:{best + 1}, for its\n")
    assert "fall" not in why  # nobody chose how high a score has to be
    nearest = [line["id"] for line in lines].index(lines[best]["nearest"])
    assert f"its nearest earlier one, {traces.name}:{nearest + 1}, has" in why
    assert f"novelty            {lines[best]['novelty']:.4f}" in why
    assert said.endswith(
        f"to keep the best: kp-worker score {traces} --keep best.jsonl\n"
        f"to look at all of them: kp-worker score {traces} --html scores.html --open\n"
        f"to choose what passes: kp-worker policy tune {traces}\n"
    )


def test_a_person_sees_how_runs_ended_and_which_of_them_somebody_judged(tmp_path, real_traces):
    told = [
        *({"ending": "cut_off", "outcome_source": "structural_failure"}, {"ending": "answered"}),
        *({"ending": "answered", "outcome_source": "label"}, {"ending": ["failed"], "outcome_source": 1}),
    ]
    traces = [json.loads(line) for line in real_traces[:4]]
    for trace, members in zip(traces, told, strict=True):
        trace["metadata"].pop("outcome_source", None)
        trace["metadata"] |= members
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join(map(json.dumps, traces)))

    said = run(file, "--table").stdout
    lines = [json.loads(line) for line in run(file).stdout.splitlines()]

    told = [("cut_off", False), ("answered", None), ("answered", True), (None, None)]
    assert [(line["ending"], line["judged"]) for line in lines] == told
    assert (
        "ended: 2 answered, 1 cut off, 1 not told; judged: 1 by somebody (✓), 1 by nobody, 2 not told" in said
    )
    rows = {row.split(f"{file.name}:")[1][0]: row for row in said.split("\n\n")[0].splitlines()[2:]}
    assert [("✓" in rows[number]) for number in "1234"] == [False, False, True, False]
    assert "cut off" in rows["1"]
    assert "not told" in rows["4"]


def test_the_policy_decides_beside_the_fifth(traces, tmp_path):
    (tmp_path / "worker.toml").write_text("[policy]\nthreshold = 0.7\nmin_novelty = 0.1\n")
    said = run(traces, "--table", "--config", tmp_path / "worker.toml").stdout
    assert " pass, and " in said
    assert "are withheld, by the policy: threshold 0.7\n" in said
    assert "DECISION" in said
    assert "fall" in said or "it passes by" in said


@pytest.mark.parametrize("width", [80, 100, 160])
def test_rank_score_ending_and_objective_are_read_at_any_width_of_a_terminal(width, real_traces, tmp_path):
    """A session's path pushed all else out of the table."""
    record = score_line(real_traces[0], make_scorer(Settings(), None), Settings(), embedder="none")
    folder = f"{tmp_path}/.codex/sessions/2026/11"
    records = [
        replace(record, source=f"{folder}/{day}/rollout-2026-11-{day}T09-12-44-0193a-7d2{day}.jsonl")
        for day in (27, 28)
    ]
    console = Console(width=width, file=StringIO())
    folder_line, table, *_ = report_of(records, Policy(), "trace")
    console.print(table)
    head, *rows = console.file.getvalue().splitlines()

    assert folder_line == f"traces in {folder}/"
    assert max(map(len, (head, *rows))) <= width
    assert all(name in head for name in ("RANK", "SCORE", "ENDING", "STEPS", "OBJ"))
    assert ["27.jsonl" in rows[0], "28.jsonl" in rows[1]] == [True, True]
    assert all(excerpt(record)[:7] in row for row in rows)


def test_a_run_is_converted_as_the_options_say(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So"}]))

    converted = json.loads(run(file, "--from", "auto", "--domain", "code").stdout)
    refused = run(file, "--domain", "code")

    assert converted["domain"] == "code"
    assert refused.exit_code == 2
    assert "--domain needs --from: without it, the traces are scored as they are" in refused.stderr


def test_a_score_with_its_trace_is_one_line_however_the_lines_of_the_file_end(tmp_path, real_traces):
    file = tmp_path / "traces.jsonl"
    file.write_bytes(real_traces[0] + b"\r\n" + real_traces[1] + b"\n")

    lines = run(file, "--traces").stdout.splitlines()

    assert [json.loads(line)["trace"] for line in lines] == [json.loads(trace) for trace in real_traces[:2]]


def test_files_of_another_format_are_converted_first(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So"}]))

    said = run(file, "--from", "auto", "--table").stdout

    assert "Why? → So" in said
    assert f"to keep the best: kp-worker score {file} --from auto --keep best.jsonl\n" in said


def test_each_of_the_first_invalid_lines_is_named_and_the_others_are_counted(tmp_path, real_traces):
    """A picture has thousands of lines."""
    file = tmp_path / "picture"
    file.write_bytes(b"\n".join([real_traces[0], *[b"no trace"] * 12]))

    said = run(file).stderr.splitlines()

    assert [line.split(": ")[0] for line in said[:10]] == [f"{file}:{line}" for line in range(2, 12)]
    assert said[10:] == ["and 2 more", "12 of 13 lines are invalid"]


def test_a_line_that_is_too_large_is_not_held_in_memory(tmp_path, real_traces):
    """Its size was a multiple of the file's."""
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"x" * 50_000_000 + b"\n" + real_traces[0])
    with traced() as memory:
        result = run(file)

    assert f"{file}:1: too_large: more bytes than limits.trace_bytes, 1048576" in result.stderr
    assert len(result.stdout.splitlines()) == 1
    assert memory.peak < 45_000_000


def test_who_has_no_model_learns_of_the_embedder_that_needs_none(traces, monkeypatch):
    def load(*_settings):
        raise MissingExtraError("openvino is not installed")

    monkeypatch.setattr(scoring, "load_embedder", load)

    result = CliRunner().invoke(score, [str(traces)])

    assert str(result.exception) == "`--embedder lexical` needs no model; openvino is not installed"


@pytest.mark.parametrize("policy", ["", "[policy]\nthreshold = 0.5\n"])
def test_the_best_are_kept_in_a_file_with_their_scores(traces, tmp_path, policy):
    """By the policy, or by a share of a fifth if none is chosen."""
    (tmp_path / "worker.toml").write_text(policy)
    best = tmp_path / "best.jsonl"

    result = run(traces, "--keep", best, "--config", tmp_path / "worker.toml")

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    kept = [json.loads(line) for line in best.read_bytes().splitlines()]
    scores = {line["id"]: line["quality_score"] for line in lines}
    passing = [line["id"] for line in lines if line["decision"] == "contribute"]
    assert [trace["metadata"]["quality_score"] for trace in kept] == sorted(
        (scores[trace["id"]] for trace in kept), reverse=True
    )
    assert ({trace["id"] for trace in kept} == set(passing)) == bool(policy)
    which = "what the policy passes" if policy else "the best fifth of each domain"
    assert f"kept: {len(kept)} of 154 traces, {which}, in {best}\n" in result.stderr
    assert len(kept) == (len(passing) if policy else 31)


def test_the_best_of_converted_runs_are_traces(tmp_path):
    (tmp_path / "runs").mkdir()
    for answer in ("So", "So be it", "So it is, since it was so"):
        (tmp_path / f"runs/{len(answer)}.json").write_text(
            json.dumps([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": answer}])
        )

    result = run(tmp_path / "runs", "--keep", tmp_path / "best.jsonl", "--table")

    (kept,) = map(json.loads, (tmp_path / "best.jsonl").read_bytes().splitlines())
    assert kept["task"]["objective"] == "Why?"
    assert result.exit_code == 0


def test_all_scores_are_written_to_a_page(traces, tmp_path):
    page = tmp_path / "scores.html"

    result = run(traces, "--html", page)

    assert f"page: {page}\n" in result.stderr
    data = page.read_text("utf-8").split('id="data">')[1].split("</script>")[0]
    scores = [row[1] for row in json.loads(data)["rows"]]
    assert scores == [json.loads(line)["quality_score"] for line in result.stdout.splitlines()]


def test_what_is_said_of_a_page_needs_one(traces):
    assert "--open and --no-content need --html FILE" in run(traces, "--no-content").stderr


def test_a_trace_of_a_notebook_is_scored_as_its_line_is(traces, real_traces):
    """As an object, a model or a text."""
    given = [json.loads(real_traces[0]), ReasoningTrace.model_validate_json(real_traces[1]), real_traces[2]]

    scores = score_traces(given)

    lines = [json.loads(line) for line in run(traces).stdout.splitlines()][:3]
    assert [record.score.quality_score for record in scores.records] == [
        line["quality_score"] for line in lines
    ]
    with pytest.raises(InvalidRecordError, match="JSON is malformed"):
        score_traces(["no trace"])


def test_files_of_a_former_call_stay_where_there_is_nothing_to_score(tmp_path):
    nothing, best, page = (tmp_path / name for name in ("nothing.jsonl", "best.jsonl", "page.html"))
    nothing.touch()
    best.write_text("kept before")

    result = run(nothing, "--keep", best, "--html", page)

    assert "no trace to score" in str(result.exception)
    assert best.read_text() == "kept before"
    assert not page.exists()
