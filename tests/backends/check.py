"""Pull runs from real servers of Phoenix and MLflow, and write scores back: `make check NAME=backends`."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from playwright.async_api import async_playwright

from knowledgepulse_convert import convert
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.tools.backends.all_backends import connected
from knowledgepulse_worker.tools.backends.backend import SCORE, RunScore
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.demo.processes import free_ports
from knowledgepulse_worker.tools.evaluations.evaluation_event import SpanIds, otlp_spans
from support import metrics_page as page
from support.scored import published
from support.streams import Message, score_of
from support.tools import tool

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests/data/conversions/otlp.jsonl"
CASES = {
    "OTel GenAI": "all export formats of the same spans give the same trace 1",
    "OTel GenAI, structured": "reads messages from structured attributes",
    "OpenLLMetry": "reads messages from numbered attributes",
    "OpenInference": "all export formats of openinference spans give the same trace",
    "Vercel AI SDK": "a call of the ai sdk is a run, with the tools between its model calls",
}
START_LIMIT = 240.0
RUNS = 60


def documents():
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return {line["name"]: line["document"] for line in lines}


def renamed(document):
    """Return a document with other ids, and its trace id: a server keeps one span of an id."""
    text = json.dumps(document)
    spans = [
        span
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    new = uuid4().hex
    for number, name in enumerate(sorted({span["spanId"] for span in spans})):
        text = text.replace(name, f"{new[:12]}{number:04x}")  # in the order of the old ones
    return json.loads(text.replace(spans[0]["traceId"], new)), new


def protobuf(document):
    document = json.loads(json.dumps(document))
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & {name for name in span if span[name]}:
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=True).SerializeToString()


def asked(url, content=None, **headers):
    request = urllib.request.Request(url, content, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


class Server:
    """A server of a backend.

    Attributes:
        name: the name of the backend.
        url: its address.
    """

    def __init__(self, name, url, headers):
        self.name, self.url, self.headers = name, url, headers

    def record(self, document):
        """Send spans, as an instrumentation does."""
        kind = {"Content-Type": "application/x-protobuf"}
        asked(f"{self.url}/v1/traces", protobuf(document), **kind, **self.headers)

    def run_id(self, trace_id):
        return f"tr-{trace_id}" if self.name == "mlflow" else trace_id

    def spans(self, trace_id):
        """Return the names of a run's spans with those of their parents, from the server's own interface."""
        if self.name == "mlflow":
            query = f"/api/3.0/mlflow/traces/batchGet?trace_ids=tr-{trace_id}"
            (found,) = json.loads(asked(self.url + query))["traces"]
            spans = [(span["span_id"], span["name"], span.get("parent_span_id")) for span in found["spans"]]
        else:
            query = f"/v1/projects/default/spans?trace_id={trace_id}&limit=100"
            found = json.loads(asked(self.url + query))["data"]
            spans = [(span["context"]["span_id"], span["name"], span["parent_id"]) for span in found]
        names = {span: name for span, name, _ in spans}
        return {name: names.get(parent) for _, name, parent in spans}

    def scores(self, trace_id):
        """Return the values of the scores of a run, from the server's own interface."""
        if self.name == "mlflow":
            info = json.loads(asked(f"{self.url}/api/3.0/mlflow/traces/tr-{trace_id}"))["trace"]["trace_info"]
            return [assessment["feedback"]["value"] for assessment in info.get("assessments", ())]
        query = f"trace_ids={trace_id}&limit=100"
        data = json.loads(asked(f"{self.url}/v1/projects/default/trace_annotations?{query}"))["data"]
        return [annotation["result"]["score"] for annotation in data]


@pytest.fixture(scope="module", params=["phoenix", "mlflow"])
def server(request, tmp_path_factory):
    """A server that starts from empty, from an environment of its own."""
    folder, (port, second) = tmp_path_factory.mktemp(request.param), free_ports(2)
    programs = Path(os.environ[request.param.upper()]) / "bin"
    environment = {
        **os.environ, "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_PORT": str(port),
        "PHOENIX_HOST": "127.0.0.1", "PHOENIX_GRPC_PORT": str(second), "PHOENIX_TELEMETRY_ENABLED": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }  # fmt: skip
    store = f"sqlite:///{folder}/mlflow.db"
    command = {
        "phoenix": ["phoenix", "serve"],
        "mlflow": ["mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
                   "--backend-store-uri", store],
    }[request.param]  # fmt: skip
    ready = {"phoenix": "/openapi.json", "mlflow": "/health"}[request.param]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / command[0], *command[1:]], env=environment, cwd=folder, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_LIMIT
            while True:
                try:
                    asked(url + ready)
                    break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline, (folder / "log").read_text()
                    time.sleep(0.5)
            yield Server(request.param, url, {"x-mlflow-experiment-id": "0"})
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def kp_worker(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "knowledgepulse_worker.cli.entry", *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def pulled(server, *options):
    done = kp_worker("pull", server.name, server.url, "--settle", "0", *options)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def eventually(found):
    """Phoenix inserts spans shortly after it has taken them."""
    deadline = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return value


def parsed(step):
    """Return a step to compare: Phoenix writes JSON with other white space, and times in microseconds."""
    content, latency = step.get("content") or "", step.get("latency_ms")
    content = json.loads(content) if content.startswith(("{", "[")) else content
    return {**step, "content": content, "latency_ms": None if latency is None else round(latency, 2)}


@pytest.mark.parametrize("instrumentation", CASES)
def test_the_spans_of_an_instrumentation_come_out_as_the_run(server, instrumentation):
    """Calls, thoughts, results, outcome and times are those of the spans themselves."""
    document, trace_id = renamed(documents()[CASES[instrumentation]])
    (expected,) = [json.loads(conversion.trace.to_json()) for conversion in convert(document, "otlp")]
    server.record(document)

    def found():
        traces = pulled(server)[1]
        return [
            trace for trace in traces if trace["metadata"]["pulled_from"]["run"] == server.run_id(trace_id)
        ]

    (trace,) = eventually(found)

    assert [parsed(step) for step in trace["steps"]] == [parsed(step) for step in expected["steps"]]
    assert trace["outcome"] == expected["outcome"]
    assert trace["task"] == expected["task"]
    assert trace["id"] == expected["id"]
    for name in ("success", "native_id", "span_context"):
        assert trace["metadata"].get(name) == expected["metadata"].get(name), name
    times = [datetime.fromisoformat(compared["metadata"]["created_at"]) for compared in (trace, expected)]
    assert abs(times[0] - times[1]) <= timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def runs(server):
    """The ids of many runs on a server."""
    document = documents()[CASES["OTel GenAI"]]
    ids = []
    for _ in range(RUNS):
        renamed_document, trace_id = renamed(document)
        server.record(renamed_document)
        ids.append(trace_id)
    eventually(lambda: {server.run_id(trace_id) for trace_id in ids} <= {
        trace["metadata"]["pulled_from"]["run"] for trace in pulled(server)[1]
    })  # fmt: skip
    return ids


def killed_again_and_again(command, watched):
    """Run a command, and kill it at each new size of a file; return the number of kills."""
    seen, kills = {watched()}, 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None:
            if (now := watched()) not in seen:
                seen.add(now)
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
                break
            time.sleep(0.0005)
        else:
            assert process.returncode == 0, process.communicate()[1]
            process.communicate()
            return kills


def test_a_pull_that_is_killed_again_and_again_takes_each_run_once(server, runs, tmp_path):
    output, state = tmp_path / "traces.jsonl", tmp_path / "state"
    command = [
        sys.executable, "-m", "knowledgepulse_worker.cli.entry", "pull", server.name, server.url,
        "--settle", "0", "--state", str(state), "--output", str(output),
    ]  # fmt: skip
    kills = killed_again_and_again(command, lambda: output.stat().st_size if output.exists() else 0)
    taken = [json.loads(line)["metadata"]["pulled_from"]["run"] for line in output.read_text().splitlines()]
    assert kills >= 2
    assert len(taken) == len({*taken})
    assert {server.run_id(run) for run in runs} <= {*taken}
    before = output.read_bytes()
    assert kp_worker(*command[3:]).returncode == 0
    assert output.read_bytes() == before


def test_scores_that_are_written_back_again_after_a_kill_are_there_once(server, runs):
    command = [
        sys.executable, "-m", "knowledgepulse_worker.cli.entry", "score-runs", server.name, server.url,
        "--embedder", "none", "--write-back",
    ]  # fmt: skip
    kills = killed_again_and_again(command, lambda: bool(server.scores(runs[0])))
    done = kp_worker(*command[3:])
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, kp_worker(*command[3:-1], "--traces").stdout.splitlines())
    values = {line["trace"]["metadata"]["pulled_from"]["run"]: line["quality_score"] for line in lines}
    assert kills >= 1
    for run in runs:
        (value,) = server.scores(run)
        assert abs(value - values[server.run_id(run)]) < 0.0001


async def test_a_score_for_a_run_that_is_gone_is_named_and_the_others_are_written(server, runs):
    def score(trace_id):
        return RunScore(server.run_id(trace_id), f"kp:trace:{trace_id}", 0.5, "rejected", "x", 0)

    gone = score(uuid4().hex)
    async with connected(server.name, server.url, "default") as backend:
        refusals = await backend.send([gone, score(runs[1])])
    assert [refusal.score for refusal in refusals] == [gone]
    assert 0.5 in await asyncio.to_thread(server.scores, runs[1])


def test_a_span_of_a_score_is_below_the_agent_s_and_the_run_stays_the_same(server):
    """As a Collector passes it on, twice."""
    document, trace_id = renamed(documents()[CASES["OTel GenAI"]])
    server.record(document)

    def found():
        traces = [trace for trace in pulled(server)[1] if trace["metadata"].get("span_context")]
        return [trace for trace in traces if trace["metadata"]["span_context"]["trace_id"] == trace_id]

    (before,) = eventually(found)
    context = SpanIds(**before["metadata"]["span_context"])
    trace = ReasoningTrace.model_validate(before)
    record = read_scored_record(published(7, trace.to_json(), Scorer().evaluate(trace), Policy()))
    for _ in range(2):
        server.record(json.loads(otlp_spans(record, context, "knowledgepulse-worker", time.time_ns())))

    spans = eventually(lambda: {**shown} if "evaluate" in (shown := server.spans(trace_id)) else None)
    assert spans["evaluate"] in spans
    assert found() == [before]


async def test_the_scores_of_the_topics_are_there_once_whatever_is_killed(server, runs, make_stream):
    stream = await make_stream(2, embedding={"backend": "none"})
    traces = (await asyncio.to_thread(pulled, server))[1]
    raw = await stream.publish(Message(json.dumps(trace).encode()) for trace in traces)
    async with stream.worker() as worker:
        await stream.outputs(worker, raw)
        assert await worker.stop() == 0
    command = f"evaluations --to {server.name} {server.url}"
    topics = stream.settings.topics
    outputs = await stream.read(topics.contribute, topics.rejected)
    wanted = {
        json.loads(output.value)["metadata"]["pulled_from"]["run"]: score_of(output)["score"]
        for output in outputs
    }
    for _ in range(2):
        async with stream.worker(command=command) as process, asyncio.timeout(START_LIMIT):
            while not page.value(await process.metrics(), "kp_evaluations_total", result="sent"):
                await asyncio.sleep(0.01)
            await process.kill()
    async with stream.worker(command=command) as process, asyncio.timeout(START_LIMIT):
        while page.value(await process.metrics(), "kp_evaluations_total") == 0 or (
            page.value(await process.metrics(), "kp_evaluations_lag_records") != 0
        ):
            await asyncio.sleep(0.1)
        assert await process.stop() == 0, process.log()
    for run in runs[2:]:  # an earlier test wrote another score of the second one
        (value,) = await asyncio.to_thread(server.scores, run)
        assert value == pytest.approx(wanted[server.run_id(run)], abs=0.0001)


async def test_the_score_is_on_the_backend_s_own_page(server, runs):
    """At the link that scores have; a picture of it is left in build/backends."""
    run = server.run_id(runs[1])
    async with connected(server.name, server.url, "default") as backend, async_playwright() as playwright:
        assert (
            await backend.send([RunScore(run, f"kp:trace:{run}", 0.875, "contribute", "novelty 0.9", 0)])
            == []
        )
        _ = [listed async for listed in backend.runs(None)]
        browser = await playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
        shown = await browser.new_page(viewport={"width": 1600, "height": 1000})
        await shown.goto(backend.link(run))
        try:
            if server.name == "mlflow":
                # A hint lies over the page, which hides it from everyone who asks for roles.
                assess = shown.locator("button:has-text('Assess')").first
                await assess.click(timeout=60_000, force=True)
            await shown.get_by_text(SCORE).first.wait_for(timeout=60_000)
        finally:
            await shown.screenshot(path=ROOT / f"build/backends/{server.name}.png")
            await browser.close()
