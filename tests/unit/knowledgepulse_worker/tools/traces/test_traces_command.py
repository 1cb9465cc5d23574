"""The commands `kp-worker traces`, on files."""

import json
from dataclasses import replace

import pytest
from rich.cells import cell_len

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import excerpt, read_line
from knowledgepulse_worker.tools.policies.command_inputs import Inputs
from knowledgepulse_worker.tools.policies.scored_files import read_files
from knowledgepulse_worker.tools.traces import listing, traces_command


def output(result):
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_traces_are_listed_by_domain_and_score(kp_worker, scored):
    rows = output(kp_worker("traces", "list", scored, "--domain", "code", "--min", "0.6", "--json"))
    found = [json.loads(line) for line in rows.splitlines()]

    assert found
    assert all(row["domain"] == "code" and row["quality_score"] >= 0.6 for row in found)
    everything = output(kp_worker("traces", "list", scored)).splitlines()[1:]
    assert len(everything) == 154
    assert all("  not told" in row for row in everything)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_score_decision_ending_and_objective_are_read_at_any_width_of_a_terminal(width, scored):
    """Ids and times pushed the objective out, and lines that were wrapped were no table."""
    first, second = (read_line("", line.encode()) for line in scored.read_text().splitlines()[:2])
    wide = replace(first.content, objective="東京の天気は?" * 9)
    folder = "/home/someone/.codex/sessions/2026/11"
    records = [
        replace(first, source=f"{folder}/27/rollout-2026-11-27T09-12-44-0193a.jsonl", content=wide),
        replace(second, source=f"{folder}/28/rollout-2026-11-28T09-12-44-0193b.jsonl", timestamp_ms=0),
    ]

    above, head, *rows = listing.fitted(records, width)

    assert above == f"traces in {folder}/"
    assert max(map(cell_len, (head, *rows))) <= width
    assert all(name in head for name in ("SOURCE", "SCORE", "DECISION", "ENDING", "STEPS", "OBJECTIVE"))
    assert ("ID" in head.split(), "TIME" in head.split()) == (width == 160, width == 160)
    assert ["3a.jsonl" in rows[0], "3b.jsonl" in rows[1]] == [True, True]
    assert all(excerpt(record)[:7] in row for record, row in zip(records, rows, strict=True))


@pytest.mark.parametrize("width", [80, 160])
def test_a_line_of_a_trace_that_is_followed_fits_a_terminal(width, scored):
    """The next ones are not known yet, so that columns have fixed widths."""
    records = [
        read_line("raw-traces/12/123456789", line.encode()) for line in scored.read_text().splitlines()
    ]
    line = listing.followed(width)

    lines = [line(None), *map(line, records)]

    assert max(map(cell_len, lines)) <= width
    score = lines[0].index("SCORE")
    assert all(
        row[score : score + 6] == f"{record.score.quality_score:.4f}"
        for record, row in zip(records, lines[1:], strict=True)
    )
    assert listing.followed(None)(records[0]) == list(listing.lines(records[:1]))[1]


def test_files_are_not_followed(kp_worker, scored):
    refused = kp_worker("traces", "list", scored, "--follow")

    assert "--follow applies only to topics, without --near and --wait" in refused.stderr


def test_the_first_traces_are_waited_for_and_brokers_that_cannot_be_reached_are_not(kp_worker, monkeypatch):
    """As after the first `publish`: a loop around the command never ended with a wrong address."""
    topics = [InputError("contain no scored traces"), [], NoBrokerError("refused")]

    def records(_given):
        if isinstance(found := topics.pop(0), Exception):
            raise found
        return found

    monkeypatch.setattr(Inputs, "records", records)
    monkeypatch.setattr(traces_command.time, "sleep", lambda _: None)

    result = kp_worker("traces", "list", "--wait", "60")

    assert (result.exit_code, topics) == (1, [])
    assert result.stderr == "Error: refused\n"


@pytest.mark.parametrize(("options", "listed"), [((), 1), (("--wait", "60"), 3)])
def test_a_wait_lists_what_arrives_behind_the_first_traces(kp_worker, monkeypatch, scored, options, listed):
    """What was rejected came first, and the best traces were missed."""
    records = [read_line("", line.encode()) for line in scored.read_text().splitlines()[:3]]
    looks = iter([records[:1], records, records])
    monkeypatch.setattr(Inputs, "records", lambda _given: next(looks))
    monkeypatch.setattr(traces_command.time, "sleep", lambda _: None)

    said = output(kp_worker("traces", "list", "--json", *options))

    assert len(said.splitlines()) == listed


def test_traces_near_their_threshold_are_listed_nearest_first(kp_worker, scored):
    everything = [json.loads(line) for line in scored.read_text().splitlines()]
    distance = lambda row: abs(row["quality_score"] - row["threshold"])  # noqa: E731

    text = output(
        kp_worker("traces", "list", scored, "--near", "7", "--domain", "customer_service", "--json")
    )

    listed = [json.loads(line) for line in text.splitlines()]
    near = sorted((row for row in everything if row["domain"] == "customer_service"), key=distance)[:7]
    assert [row["id"] for row in listed] == [row["id"] for row in near]


def test_the_lines_of_a_band_are_traces_to_label(kp_worker, scored, tmp_path):
    """What is worth a label is chosen by one command, and read by the others."""
    band = tmp_path / "band.jsonl"
    band.write_text(output(kp_worker("traces", "list", scored, "--min", "0.4", "--max", "0.5", "--json")))
    lines = [json.loads(line) for line in band.read_text().splitlines()]
    original = {(row := json.loads(line))["id"]: row for line in scored.read_text().splitlines()}
    assert lines
    for line in lines:
        assert 0.4 <= line["quality_score"] <= 0.5
        whole = original[line["id"]]
        assert all(line[name] == whole[name] for name in line.keys() & whole.keys() - {"policy"})

    read = [*read_files([band], Settings())]
    assert [(record.id, record.score.quality_score, record.content is not None) for record in read] == [
        (line["id"], line["quality_score"], True) for line in lines
    ]


def test_shows_a_trace_by_id_or_location(kp_worker, scored):
    by_place = output(kp_worker("traces", "show", f"{scored}:1", scored))
    first = json.loads(scored.read_text().splitlines()[0])["id"]

    assert by_place.startswith(f"trace {first}\nfrom {scored}:1\n")
    assert output(kp_worker("traces", "show", first, scored)) == by_place


def test_a_line_is_shown_although_a_later_one_is_invalid(kp_worker, real_traces, tmp_path):
    raw = tmp_path / "raw.jsonl"
    raw.write_bytes(real_traces[0] + b"\n" + "no trace".encode("utf-16") + b"\n")

    shown = output(kp_worker("traces", "show", f"{raw}:1", "--embedder", "none"))

    assert f"\nfrom {raw}:1\n" in shown
    refused = kp_worker("traces", "show", f"{raw}:2", "--embedder", "none")
    assert f"{raw}:2: not a trace: " in refused.stderr


def test_a_scored_trace_is_shown_with_the_score_that_the_given_policy_would_give(kp_worker, scored, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("[policy]\nthreshold = 0.1\n")

    shown = output(kp_worker("traces", "show", f"{scored}:1", "--policy", policy))

    assert "the threshold 0.75 of" in shown
    assert ", which did not score it:" in shown
    assert "reaches the threshold 0.1 of" in shown
    assert "×" in shown
