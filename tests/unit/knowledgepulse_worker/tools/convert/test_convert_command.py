"""`kp-worker convert`: files in, traces out, the rest on standard error."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import weakref
from copy import copy
from itertools import chain
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from click.testing import CliRunner
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from rich.progress import Progress

from knowledgepulse_convert import Options
from knowledgepulse_convert import convert as conversions_of
from knowledgepulse_worker.cli import entry as cli
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.tools.convert import file_conversion, unpacking
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, conversions
from support.conversions import FOLDER, read_cases, small_documents
from support.memory import traced

DOCUMENTS = small_documents()
CHAT = [{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "Done"}]


def trajectory(name):
    return {
        "schema_version": "ATIF-v1.8",
        "trajectory_id": name,
        "agent": {"name": "fixer"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Fix it"},
            {"step_id": 2, "source": "agent", "message": "Done", "extra": {"note": "x" * 10}},
        ],
    }


def span(number, **attributes):
    pairs = [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]
    ids = {"traceId": "a", "spanId": str(number), **({"parentSpanId": "1"} if number > 1 else {})}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**ids, "attributes": pairs}]}]}]}


RUN = [
    span(1, **{"gen_ai.operation.name": "invoke_agent"}),
    span(
        2,
        **{
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Fix it",
            "gen_ai.completion.0.content": "Done",
        },
    ),
]


@pytest.fixture
def convert(tmp_path):
    """Run the command on files with the given contents; return its result."""

    def run(*contents, options=(), **invocation):
        paths = []
        for number, content in enumerate(contents):
            path = tmp_path / f"{number}.json"
            path.write_bytes(content)
            paths.append(str(path))
        return CliRunner().invoke(cli.main, ["convert", *paths, *map(str, options)], **invocation)

    return run


def lines(*documents):
    return b"\n".join(json.dumps(document).encode() for document in documents)


def traces(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "content",
    [
        lines(CHAT, CHAT),
        json.dumps([{"messages": CHAT}, {"messages": CHAT}], indent=2).encode(),
        b"\n\n" + lines(CHAT, CHAT) + b"\n\n",
        b"\xef\xbb\xbf" + lines(CHAT, CHAT),
    ],
)
def test_a_file_is_one_document_or_one_per_line(convert, content):
    result = convert(content)

    assert result.exit_code == 0, result.stderr
    assert [trace["task"]["objective"] for trace in traces(result)] == ["Fix it", "Fix it"]
    assert "2 traces, 0 with a known outcome; 0 not converted" in result.stderr


def test_what_runs_do_not_record_is_said_once(convert):
    [case] = read_cases(FOLDER / "continue.jsonl")

    result = convert(lines(case["document"], case["document"]))

    assert result.stderr.count("warning: 2 traces of continue: no exit codes or finish reasons are") == 1
    assert {*traces(result)[1]["metadata"]["unrecorded"]} == {"exit codes", "finish reasons"}


def test_steps_that_may_stand_in_another_order_are_said_whatever_the_end(convert):
    """The warning was only of successes: a run that a limit had cut off lost the order without a word."""
    call = {"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": "{}"}}
    answer = {"id": "2", "role": "assistant", "content": "I weigh it. ", "toolCalls": [call]}
    result = {"id": "3", "role": "tool", "toolCallId": "c1", "content": "95 g"}

    said = convert(lines([{"id": "1", "role": "user", "content": "How much is it?"}, answer, result])).stderr

    assert "warning: 1 trace of agui_messages: the order of texts and calls is not recorded" in said


def test_the_files_of_a_conversation_of_openhands_are_one_run(convert, tmp_path):
    """Each was refused: "no objective", "no steps"."""
    [case] = [case for case in read_cases(FOLDER / "openhands.jsonl") if "exit code" in case["name"]]
    files = [tmp_path / f"event-{number:05}-e{number}.json" for number in range(len(case["document"]))]
    for file, event in zip(files, case["document"], strict=True):
        file.write_text(json.dumps(event))

    result = convert(options=reversed(files))
    [trace] = traces(result)
    assert (result.exit_code, len(trace["steps"])) == (0, 7)

    result = convert(options=files[:1])
    assert (result.exit_code, traces(result)) == (1, [])
    assert "one event of a conversation; convert all of its `events/*.json` at once" in result.stderr


@pytest.mark.parametrize(
    ("names", "repeated"), [(["t1", "t2"], []), (["t1", "t2", "t1", "t1"], ["2 traces"])]
)
def test_runs_that_share_an_id_are_counted(convert, names, repeated):
    result = convert(lines(*({"id": name, "messages": CHAT} for name in names)))

    assert (
        re.findall(r"^(\d+ traces?) with the id of an earlier one: ", result.stderr, re.MULTILINE) == repeated
    )


def test_reads_standard_input(convert):
    assert len(traces(convert(options=["-"], input=lines(CHAT)))) == 1


SESSION = [
    {"type": kind, "uuid": kind, "parentUuid": None, "sessionId": "s1", "message": {"content": text}}
    for kind, text in (("user", "Fix the tests"), ("assistant", "All pass"))
]


@pytest.mark.parametrize(
    "content",
    [
        lines(*SESSION),
        lines({"type": "invented"}, {"new": 1}, *SESSION),
        lines(*SESSION) + b'\n{"type": "assistant", "uu',
        lines(*SESSION) + b"\n\x00\x00\xff\n" + lines(CHAT),
        lines(SESSION[0], {"type": "invented"}, SESSION[1]),
    ],
    ids=["whole", "unknown start", "half-written end", "damaged", "unknown line"],
)
def test_a_session_is_one_trace_whatever_lines_it_has(convert, content):
    result = convert(content)

    assert result.exit_code == 0, result.stderr
    assert [trace["outcome"]["result_summary"] for trace in traces(result)] == ["All pass"]


def test_a_session_is_read_line_by_line(convert, monkeypatch):
    """No line is kept: the first is gone before the last is read."""
    alive = weakref.WeakSet()

    class Line(dict):
        pass

    def parsed(text, **options):
        line = Line(loads(text, **options))
        alive.add(line)
        peak.append(len(alive))
        return line

    loads, peak = json.loads, []
    Line.__hash__ = object.__hash__
    monkeypatch.setattr("knowledgepulse_worker.tools.convert.file_conversion.json.loads", parsed)
    convert(lines(*SESSION, *({"type": "progress", "uuid": str(n), "x": "y"} for n in range(200))))

    assert len(peak) == 202
    assert max(peak) <= 3


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_printed_is_the_record_value(name):
    for conversion in conversions_of(DOCUMENTS[name]):
        assert b"".join(conversion.pieces()) == conversion.to_json() == conversion.trace.to_json()


@pytest.mark.parametrize("character", ["x", "—", "✅"])
@pytest.mark.slow
def test_a_long_session_takes_no_more_than_twice_the_memory_of_its_trace(tmp_path, character):
    """Python holds such a text at one, two or four bytes a character."""

    def line(number, kind, text):
        ids = {"uuid": str(number), "parentUuid": None, "sessionId": "s1"}
        return {"type": kind, **ids, "message": {"content": text}, "toolUseResult": text}

    texts = (line(number, "assistant", f"{number} {character} " + "x" * 5_000) for number in range(600))
    file, printed = tmp_path / "session.jsonl", tmp_path / "traces.jsonl"
    file.write_bytes(lines(line("a", "user", "Fix the tests"), *texts))
    with traced() as memory, printed.open("wb") as out, Progress(disable=True) as progress:
        found = conversions([str(file)], "auto", ConversionReport(), progress, Options())
        for _, conversion in found:
            out.writelines(conversion.pieces())

    assert 600 * 5_000 < printed.stat().st_size < 620 * 5_000
    assert memory.peak < 1.6 * printed.stat().st_size


MEASURE = """
import os, sys
from pathlib import Path
from rich.progress import Progress
from knowledgepulse_convert import Options
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, conversions

for name in sys.argv[1:]:
    progress = Progress(disable=True)
    with open(os.devnull, "wb") as out:
        for _, conversion in conversions([name], "auto", ConversionReport(), progress, Options()):
            out.writelines(conversion.pieces())
    [peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    print(int(peak.split()[1]) * 1024, sum(map(len, conversion.pieces())))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process's memory")
def test_steps_take_the_place_of_messages_in_the_memory_of_the_process(tmp_path):
    """Steps in blocks of 4 KiB left that of short messages unused, which an index kept from the system."""

    def line(uuid, kind, **block):
        ids = {"uuid": uuid, "parentUuid": None, "sessionId": "s1"}
        return {"type": kind, **ids, "message": {"content": [block]}}

    def session(name, calls):
        file = tmp_path / name
        asked = [line("a", "user", type="text", text="Fix the tests")]
        called = [
            [
                line(
                    f"c{n}", "assistant", type="tool_use", id=f"call_{n}", name="Bash", input={"x": "y" * 60}
                ),
                line(f"r{n}", "user", type="tool_result", tool_use_id=f"call_{n}", content="x" * 350),
            ]
            for n in range(calls)
        ]
        file.write_bytes(lines(*asked, *chain.from_iterable(called)))
        return str(file)

    command = [sys.executable, "-c", MEASURE, session("short", 1), session("long", 15_000)]
    measured = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    (before, _), (peak, trace) = (map(int, line.split()) for line in measured)

    assert trace > 9_000_000
    assert peak - before < 2 * trace


def test_each_request_can_be_a_trace(convert):
    again = [line | {"uuid": f"{line['uuid']} 2"} for line in SESSION]

    assert len(traces(convert(lines(*SESSION, *again)))) == 1
    assert len(traces(convert(lines(*SESSION, *again), options=["--per-request"]))) == 2


def test_a_stream_without_a_prompt_gets_its_objective_from_the_command(convert):
    stream = lines(
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "Done"}},
        {"type": "turn.completed", "usage": {}},
    )

    assert "no objective" in convert(stream).stderr
    [trace] = traces(convert(stream, options=["--objective", "Fix it"]))
    assert trace["task"]["objective"] == "Fix it"


@pytest.mark.parametrize(("levels", "is_converted"), [(197, True), (198, False), (900, False)])
def test_a_call_whose_input_nests_deeply_is_converted_or_refused(convert, levels, is_converted):
    """More than 255 levels were converted, but not written: a traceback ended the documents after them."""
    arguments = '{"a": ' * levels + "1" + "}" * levels
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    nested = [CHAT[0], {"role": "assistant", "content": None, "tool_calls": [call]}]
    result = convert(b"\n".join([lines(nested), lines(CHAT)]))

    assert len(traces(result)) == 1 + is_converted
    for line in result.stdout.splitlines():
        decode_trace(line.encode(), 1_000_000)  # the worker accepts what is converted
    assert ("nested too deeply" in result.stderr) == (not is_converted)


def test_reports_an_invalid_line_and_converts_the_rest(convert, tmp_path):
    result = convert(b"\n".join([lines(CHAT), b"{", b'"text"', lines([CHAT[0]]), lines(CHAT)]))

    file = tmp_path / "0.json"
    assert result.exit_code == 1
    assert len(traces(result)) == 2
    assert f"{file}:2: not converted: not JSON: " in result.stderr
    assert f"{file}:3: not converted: unknown format; accepted are otlp, " in result.stderr
    assert f"{file}:4: not converted: no step" in result.stderr
    assert "2 traces, 0 with a known outcome; 3 not converted" in result.stderr


@pytest.mark.parametrize("line", [json.dumps(CHAT).encode(), b"[" * 900 + b"]" * 900])
def test_reports_an_invalid_line_among_spans(convert, tmp_path, line):
    result = convert(b"\n".join([lines(RUN[0]), line, lines(RUN[1])]))

    assert result.exit_code == 1
    assert len(traces(result)) == 1
    assert f"{tmp_path / '0.json'}:2: not converted: not otlp, unlike the lines before it" in result.stderr


def archive(**members):
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as file:
        for name, value in members.items():
            file.writestr(name.replace("__", "/"), value if isinstance(value, bytes) else json.dumps(value))
    return content.getvalue()


def overlapping(count):
    """Return an archive whose directory names the same content again and again."""
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as file:
        file.writestr("samples/0.json", random.Random(0).randbytes(10_000))
        (first,) = file.infolist()
        for number in range(1, count):
            copied = copy(first)
            copied.filename = f"samples/{number}.json"
            file.filelist.append(copied)
    return content.getvalue()


INSPECT = DOCUMENTS["inspect"]
HEADER = {name: value for name, value in INSPECT.items() if name != "samples"}
TWO = {"samples__1.json": INSPECT["samples"][0], "samples__2.json": {**INSPECT["samples"][0], "id": 2}}


@pytest.mark.parametrize("header", ["header.json", "_journal/start.json"])
def test_each_sample_of_an_eval_archive_is_a_run(convert, header):
    result = convert(archive(**{header: HEADER}, **TWO))

    assert result.exit_code == 0, result.stderr
    assert [trace["metadata"]["native_id"] for trace in traces(result)] == ["r/t/1/1", "r/t/2/1"]
    assert traces(result)[0] == traces(convert(lines(INSPECT)))[0]


@pytest.mark.parametrize(
    ("content", "problem", "converted"),
    [
        (archive(**{"header.json": HEADER}, **TWO)[:-50], "not a whole zip archive", 0),
        (archive(**{"header.json": b"{"}, **TWO), "header.json: not converted: not JSON", 0),
        (archive(**{"header.json": HEADER, "samples__3.json": b"{"}, **TWO), "samples/3.json: not conv", 2),
        (archive(**TWO), "samples/1.json: not converted: unknown format", 0),
        (archive(a=b"x"), "a zip archive without an Inspect log, which is not read; unpack it", 0),
        (archive(**{"header.json": HEADER, "samples__3.json": b" " * 2**21}, **TWO), "than 1 MiB", 2),
        (archive(samples__1=bytes(1000)).replace(b"\x08\x00", b"\x63\x00"), "samples/1: not converted", 0),
        (overlapping(100), "not a whole zip archive: its members overlap", 0),
    ],
)
def test_what_is_wrong_in_an_archive_is_told_with_its_member(
    convert, monkeypatch, content, problem, converted
):
    monkeypatch.setattr(file_conversion, "MAX_DOCUMENT", 2**20)
    result = convert(content)

    assert result.exit_code == 1
    assert problem in result.stderr
    assert len(traces(result)) == converted


GRADED = [{"messages": CHAT, "id": str(reward), "score": reward} for reward in (0.25, 0.5, 7)]


def successes(result):
    return [(trace["metadata"]["success"], trace["metadata"]["outcome_source"]) for trace in traces(result)]


def test_scores_that_judge_nothing_are_named_and_judge_the_runs_if_asked(convert):
    lines = "\n".join(map(json.dumps, GRADED)).encode()
    result = convert(lines)
    assert successes(result) == [(True, "ended_without_error")] * 3
    assert "scores of traces that nobody judged: score (3);" in result.stderr

    result = convert(lines, options=["--success-from", "score=0.5"])
    assert successes(result) == [(False, "label"), (True, "label"), (True, "label")]
    assert "nobody judged" not in result.stderr
    assert [s for s, _ in successes(convert(lines, options=["--success-from", "score"]))] == [
        False,
        False,
        True,
    ]
    assert (
        "'x' is not a number, as in NAME=0.5" in convert(lines, options=["--success-from", "score=x"]).stderr
    )


def test_outcomes_may_be_rewards_which_judge_if_nothing_else_does(convert, tmp_path):
    outcomes = tmp_path / "outcomes.jsonl"
    own = [
        {"id": "0.25", "reward": 0.5},
        {"id": "0.5", "reward": 0.5, "success": True},
        {"id": "7", "reward": 9},
    ]
    outcomes.write_text("\n".join(map(json.dumps, own)))
    result = convert("\n".join(map(json.dumps, GRADED)).encode(), options=["--outcomes", str(outcomes)])
    assert successes(result) == [(False, "label"), (True, "label"), (True, "ended_without_error")]
    assert [trace["metadata"]["rewards"][0] for trace in traces(result)] == [
        {"name": "reward", "value": value} for value in (0.5, 0.5, 9)
    ]


ZSTANDARD = (FOLDER / "inspect.eval").read_bytes()
"""An archive as Inspect 0.3.285 writes it: its members are packed by zstd."""


def test_an_archive_whose_members_are_packed_by_zstd_is_read(convert):
    result = convert(ZSTANDARD)
    [trace] = traces(result)
    assert (result.exit_code, trace["metadata"]["success"]) == (0, True)
    assert [step["tool"]["name"] for step in trace["steps"] if step["type"] == "tool_call"] == [
        "search",
        "read_file",
    ]


def test_a_member_packed_by_zstd_that_is_damaged_or_too_large_is_told(convert, monkeypatch):
    middle = ZSTANDARD.index(b"samples/") + 2000
    damaged = ZSTANDARD[:middle] + b"x" + ZSTANDARD[middle + 1 :]
    assert "samples/s1_epoch_1.json: not converted: cannot be unpacked" in convert(damaged).stderr
    wrong = bytearray(ZSTANDARD)
    with ZipFile(io.BytesIO(ZSTANDARD)) as file:
        checksum = file.getinfo("samples/s1_epoch_1.json").CRC.to_bytes(4, "little")
    wrong[ZSTANDARD.rindex(checksum)] ^= 1
    assert "its checksum is wrong" in convert(bytes(wrong)).stderr
    for module in (file_conversion, unpacking):
        monkeypatch.setattr(module, "MAX_DOCUMENT", 5000)
    assert "unpacks to more than 0 MiB" in convert(ZSTANDARD).stderr


def test_equal_errors_are_printed_once_with_their_number(convert, tmp_path):
    result = convert(lines(*[{"type": "progress"}] * 44, {"eval": 1, "version": 2}, {"type": "progress"}))

    file = tmp_path / "0.json"
    first, *others = result.stderr.splitlines()
    assert first.startswith(f"{file}:1: not converted: unknown format; accepted are otlp, ")
    assert others[0].startswith(f"{file}:45: not converted: unknown format; the nearest is inspect: no plan;")
    assert others[1] == f"{file}:46: not converted, nor were 43 before it: the same as {file}:1"
    assert "46 not converted" in result.stderr


def test_a_run_without_a_time_has_its_files(convert, tmp_path):
    (tmp_path / "0.json").write_bytes(lines(CHAT))
    os.utime(tmp_path / "0.json", (0, 1_767_225_600))

    result = convert(options=[str(tmp_path / "0.json")])

    metadata = traces(result)[0]["metadata"]
    assert (metadata["created_at"], metadata["created_at_source"]) == ("2026-01-01T00:00:00.000Z", "file")


def test_invalid_lines_at_the_start_do_not_hide_the_others(convert, tmp_path):
    result = convert(b"log line\nanother\n" + lines(CHAT, CHAT))

    assert (result.exit_code, len(traces(result))) == (1, 2)
    assert [f"{tmp_path / '0.json'}:{number}: not converted" in result.stderr for number in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"object": {"a": 1}, "output": []}, "unknown format"),
        ({"trajectory": [], "object": ["trace"]}, ""),
    ],
)
def test_members_of_an_unexpected_type_cost_their_document_alone(convert, content, reason):
    result = convert(lines(CHAT, content, CHAT))

    assert (result.exit_code, len(traces(result))) == (1, 2)
    assert result.stderr.count("not converted: ") == 1
    assert f"not converted: {reason}" in result.stderr


def test_reports_escape_what_could_control_a_terminal(convert):
    document = [{**CHAT[0], "x\nforged: 5 traces\x1b[2J": "lost"}, CHAT[1]]
    result = convert(lines(document))

    assert "\x1b" not in result.stderr
    assert "\nforged" not in result.stderr
    assert r"x\nforged: 5 traces\x1b[2J" in result.stderr


def test_a_number_that_json_lacks_stays_in_the_trace_as_text(convert):
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": NaN, "b": -Infinity}'},
    }
    result = convert(lines([CHAT[0], {"role": "assistant", "tool_calls": [call]}]))

    (trace,) = traces(result)
    assert trace["steps"][0]["input"] == {"a": "NaN", "b": "-Infinity"}


def test_more_files_than_a_process_may_open_are_converted(convert):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 50, before[1]))
    try:
        result = convert(*[lines(CHAT)] * 150)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert (result.exit_code, len(traces(result))) == (0, 150)


def test_warns_once_a_file_of_content_that_may_be_missing(convert):
    unread = [*CHAT, {"role": "user", "content": [{"type": "voice", "text": "Go on"}]}]

    result = convert(lines({"messages": unread}, {"messages": unread}))

    assert result.exit_code == 0
    [warning] = [line for line in result.stderr.splitlines() if "warning" in line]
    assert "0.json:1: warning: not read, although it may be a part of the conversation" in warning
    assert warning.endswith(": messages[].content[].voice")


@pytest.mark.parametrize(
    ("options", "domain"),
    [
        (["--domain", "finance"], "finance"),
        (["--domain", "finance", "--domain", "fixer=code"], "code"),
        (["--domain", "other=code"], "default"),
        (["--domain", "fixer=code", "--domain", "fixer=legal"], "legal"),
    ],
)
def test_a_domain_is_given_to_all_runs_or_to_those_with_a_name(convert, options, domain):
    (trace,) = traces(convert(lines(trajectory("1")), options=options))

    assert trace["metadata"]["task_domain"] == domain


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_applies_the_domain_map_and_the_outcomes(convert, tmp_path, encoding):
    (tmp_path / "domains.toml").write_text('fixer = "code"', encoding)
    outcomes = '{"id": "1", "success": false, "confidence": 0.9}\n\n{"id": "3"}'
    (tmp_path / "outcomes.jsonl").write_text(outcomes, encoding)

    result = convert(
        lines(trajectory("1"), trajectory("2")),
        options=["--domain-map", tmp_path / "domains.toml", "--outcomes", tmp_path / "outcomes.jsonl"],
    )

    first, second = traces(result)
    assert first["metadata"]["task_domain"] == second["metadata"]["task_domain"] == "code"
    assert (first["metadata"]["success"], first["outcome"]["confidence"]) == (False, 0.9)
    assert (second["metadata"]["success"], second["outcome"]["confidence"]) == (True, 0.5)
    assert "2 traces, 1 with a known outcome" in result.stderr


def test_the_traces_can_be_scored(convert, tmp_path):
    (tmp_path / "traces.jsonl").write_text(convert(lines(CHAT, trajectory("1"))).stdout)

    result = CliRunner().invoke(cli.main, ["score", str(tmp_path / "traces.jsonl"), "--embedder", "none"])

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)


def frames(documents):
    """Return the file exporter's protobuf format: each export is prefixed with its length."""
    exports = [
        ParseDict(with_ids_of_bytes(document), TracesData()).SerializeToString() for document in documents
    ]
    return b"".join(len(export).to_bytes(4, "big") + export for export in exports)


def with_ids_of_bytes(document):
    (span,) = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    size = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
    ids = {
        name: base64.b64encode(span[name].encode().rjust(size[name], b"0")).decode()
        for name in size
        if name in span
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, **ids}]}]}]}


def test_reads_protobuf_spans_alone_and_in_frames(convert):
    whole = TracesData()
    for document in RUN:
        whole.MergeFrom(ParseDict(with_ids_of_bytes(document), TracesData()))

    framed = convert(frames(RUN), options=["--from", "otlp"])
    alone = convert(whole.SerializeToString(), options=["--from", "otlp"])

    assert framed.exit_code == 0, framed.stderr
    for trace in (*traces(framed), *traces(alone)):
        assert trace["metadata"].pop("created_at_source") == "file"
    assert [trace["steps"] for trace in traces(framed)] == [trace["steps"] for trace in traces(alone)]
    assert traces(framed)[0]["task"]["objective"] == "Fix it"


@pytest.mark.parametrize("cut", [1, 3, 30])
def test_truncated_protobuf_is_an_error(convert, cut):
    result = convert(frames(RUN)[:-cut], options=["--from", "otlp"])

    assert result.exit_code == 1
    assert "not converted: neither JSON nor OTLP protobuf: " in result.stderr
