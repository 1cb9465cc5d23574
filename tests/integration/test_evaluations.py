"""Scores sent back as OpenTelemetry events and spans, or into a backend: each once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
import pytest_asyncio

from knowledgepulse_convert import from_otlp
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS
from knowledgepulse_worker.tools.demo.processes import free_ports
from knowledgepulse_worker.tools.evaluations.run_evaluations import evaluations_group, run_evaluations
from support import metrics_page as page
from support.backends import AgentRun, FakeMLflow
from support.otlp import attributes_of, logs_of, spans_of
from support.streams import Message, Stream, headers_of, own_settings, score_of
from support.traces import made

pytestmark = pytest.mark.integration

LIMIT = 120


def spans(number):
    """Return one agent's span as OTLP JSON."""
    said = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "forecaster",
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": f"What is {number} + 1?"}]}]
        ),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": f"{number + 1}"}]}]
        ),
    }
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in said.items()]
    span = {"traceId": f"{number + 1:032x}", "spanId": f"{number + 1:016x}", "attributes": attributes}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outputs(broker, real_traces, tmp_path_factory):
    """Return a stream with 20 scored traces of spans over 2 partitions, and 3 traces without a span."""
    sections = {"embedding": {"backend": "lexical"}, "policy": {"threshold": 0.3}}
    settings = own_settings(broker.bootstrap_servers, "evaluations", sections)
    stream = Stream(settings, tmp_path_factory.mktemp("outputs"))
    await stream.create_topics(2)
    traces = [conversion.trace.to_json() for n in range(20) for conversion in from_otlp(spans(n))]
    messages = [Message(value, partition=n % 2) for n, value in enumerate([*traces, *real_traces[:3]])]
    raw = await stream.publish([*messages, Message(b"no trace", partition=0)])
    await stream.scored(raw)
    return stream


@pytest.fixture
async def scored(outputs, tmp_path):
    """Return the stream with the test's own group and topic of events."""
    name = f"otlp-{os.urandom(4).hex()}"
    own = {
        "kafka": {"group": name, "session_timeout": 6.0},
        "topics": {"evaluations": name, "evaluation_spans": f"{name}-spans"},
    }
    stream = Stream(outputs.configured(**own), tmp_path)
    await stream.create_topics(2)
    return stream


async def events(stream):
    """Return the events on the topic, by the trace and the span that they are of."""
    records = await stream.read(stream.settings.topics.evaluations)
    found = [(record.key, event) for record in records for _, _, event in logs_of(record.value)]
    assert all(key == event.trace_id.hex().encode() for key, event in found)
    return [((event.trace_id.hex(), event.span_id.hex()), event) for _, event in found]


async def child_spans(stream):
    """Return the spans on the topic, by the trace and the span whose children they are."""
    records = await stream.read(stream.settings.topics.evaluation_spans)
    found = [span for record in records for _, _, span in spans_of(record.value)]
    return [((span.trace_id.hex(), span.parent_span_id.hex()), span) for span in found]


async def read_all(stream, count):
    """Wait until there are so many events."""
    async with asyncio.timeout(LIMIT):
        while len(found := await events(stream)) < count:
            await asyncio.sleep(0.1)
    return found


async def evaluated(stream, destination=None):
    """Run the command until it has read all outputs; return its counts."""
    topics = stream.settings.topics
    outputs = len(await stream.read(topics.contribute, topics.rejected))
    stop = asyncio.Event()
    settings = stream.configured(web={"port": free_ports(1)[0]})
    running = asyncio.create_task(run_evaluations(settings, destination, stop))
    try:
        async with asyncio.timeout(LIMIT):
            while not running.done() and await position(stream) < outputs:
                await asyncio.sleep(0.1)
    finally:
        stop.set()
        counts = await running
    return counts


async def position(stream):
    """Return the number of outputs that the group has committed."""
    topics = stream.settings.topics
    kafka = stream.settings.kafka.model_copy(update={"group": evaluations_group(stream.settings.kafka.group)})
    async with TopicAdmin(kafka, topics) as admin:
        described = await admin.describe([topics.contribute, topics.rejected])
        return sum([sum(await admin.committed(topic)) for topic in described.values()])


async def test_each_score_becomes_an_event_and_a_child_of_the_agents_span(scored):
    topics = scored.settings.topics
    outputs = await scored.read(topics.contribute, topics.rejected)

    counts = await evaluated(scored)

    assert counts == {"sent": 20, "refused": 0, "failed": 0, "without_span": 3, "foreign": 0}
    found, spans = dict(await events(scored)), dict(await child_spans(scored))
    assert found.keys() == spans.keys() == {(f"{n:032x}", f"{n:016x}") for n in range(1, 21)}
    assert len({span.span_id for span in spans.values()}) == 20
    assert {name: attributes_of(span) for name, span in spans.items()} == {
        name: attributes_of(evaluation) for name, evaluation in found.items()
    }
    labels = set()
    for output in outputs:
        context = json.loads(output.value)["metadata"].get("span_context")
        if context is None:
            continue
        event = found[context["trace_id"], context["span_id"]]
        said = attributes_of(event)
        labels.add(said["gen_ai.evaluation.score.label"])
        assert event.event_name == "gen_ai.evaluation.result"
        assert said["gen_ai.evaluation.score.value"] == score_of(output)["score"]
        assert said["gen_ai.evaluation.score.label"] == (
            "contribute" if output.topic == topics.contribute else "rejected"
        )
        assert said["kp.source"] == headers_of(output)["kp-source"]
        assert said["kp.policy"] == headers_of(output)["kp-policy"]
    assert labels


async def test_nothing_is_sent_twice_or_lost_when_it_is_killed(scored):
    """Killed with an open transaction, too: what was sent in it is not there, and is sent again."""
    sending = [lambda command: command.logged("sending the scores")] * 3
    assert await scored.killed(*sending, command="evaluations") == 3
    async with scored.worker(command="evaluations") as command:
        await command.logged("sending the scores")
        found = await read_all(scored, 20)
        assert await command.stop() == 0, command.log()

    assert "scores sent, 0 refused, 0 failed; skipped " in command.log()
    assert sorted(ids for ids, _ in found) == sorted({ids for ids, _ in found})
    assert len(await events(scored)) == len(await child_spans(scored)) == 20


async def test_progress_and_probes_are_served(scored):
    async with scored.worker(command="evaluations") as command, asyncio.timeout(LIMIT):
        while page.value(metrics := await command.metrics(), "kp_evaluations_total") < 23:
            await asyncio.sleep(0.1)
        while page.value(metrics, "kp_evaluations_lag_records") != 0:
            metrics = await command.metrics()
        results = ("sent", "without_span", "foreign")
        found = [page.value(metrics, "kp_evaluations_total", result=result) for result in results]
        assert found == [20, 3, 0]
        assert [(await command.get(path))[0] for path in ("/livez", "/readyz")] == [200, 200]


# --- into a backend

RUNS = 60
"""More runs of each backend than a request has scores."""

PULLED_FROM = (FakeMLflow.name, "phoenix")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs():
    return [AgentRun(number) for number in range(RUNS)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outputs_of_runs(broker, runs, tmp_path_factory):
    """Return a stream with the scored traces of runs that were pulled from two backends."""
    sections = {"embedding": {"backend": "none"}, "policy": {"threshold": 0.2}}
    settings = own_settings(broker.bootstrap_servers, "runs", sections)
    stream = Stream(settings, tmp_path_factory.mktemp("runs"))
    await stream.create_topics(2)
    traces = [
        made(
            run.objective,
            [{"type": "thought"}] * (run.number % 7 + 1),
            pulled_from={"backend": backend, "run": FakeMLflow().run_id(run)},
        )
        for backend in PULLED_FROM
        for run in runs
    ]
    raw = await stream.publish(Message(trace.to_json(), partition=n % 2) for n, trace in enumerate(traces))
    await stream.scored(raw)
    return stream


@pytest.fixture
def fake(runs, monkeypatch):
    """The one backend that keeps a score twice unless it is asked for those that it has.

    The unit tests of backends run the same against each.
    """
    for name in BACKENDS[FakeMLflow.name].variables[0]:
        monkeypatch.setenv(name, "hidden")
    backend = FakeMLflow()
    backend.runs = [*runs]
    return backend


@pytest.fixture
def scored_runs(outputs_of_runs, tmp_path):
    """Return the stream with the test's own group."""
    own = {"group": f"runs-{os.urandom(4).hex()}", "session_timeout": 6.0}
    return Stream(outputs_of_runs.configured(kafka=own), tmp_path)


async def wanted(stream, fake):
    """Return the scores on the topics by run."""
    topics = stream.settings.topics
    outputs = await stream.read(topics.contribute, topics.rejected)
    pulled = [
        (json.loads(output.value)["metadata"]["pulled_from"], score_of(output)["score"]) for output in outputs
    ]
    assert {output.topic for output in outputs} == {topics.contribute, topics.rejected}
    return {source["run"]: score for source, score in pulled if source["backend"] == fake.name}


def written(fake):
    """Return the scores in a backend by run; each run has one."""
    found = {run: [score[0] for score in scores.values()] for run, scores in fake.scores.items()}
    assert {run: len(values) for run, values in found.items()} == dict.fromkeys(found, 1)
    return {run: pytest.approx(value, abs=0.0001) for run, (value,) in found.items()}


async def all_read(stream, command):
    """Wait until the positions of all outputs are committed."""
    async with asyncio.timeout(LIMIT):
        while await position(stream) < len(PULLED_FROM) * RUNS:
            assert command.process.returncode is None, command.log()
            await asyncio.sleep(0.1)


async def test_each_score_is_in_the_backend_once_whatever_is_down_refused_or_killed(scored_runs, fake):
    """A backend that is down delays and loses nothing; a score that it refuses stops no other."""
    gone = fake.run_id(fake.runs.pop(RUNS // 2))

    async def writes(process):
        before = fake.writes
        while fake.writes == before:
            assert process.process.returncode is None, process.log()
            await asyncio.sleep(0.001)

    async def comes_back(process):
        await process.logged("the backend does not take scores: status 503")
        assert page.value(await process.metrics(), "kp_evaluations_backend_up") == 0
        assert page.value(await process.metrics(), "kp_evaluations_backend_retries_total") >= 1
        assert await position(scored_runs) == 0
        fake.is_down = False
        await writes(process)

    fake.is_down = True
    async with fake.served() as url, asyncio.timeout(LIMIT):
        command = f"evaluations --to {fake.name} {url}"
        assert await scored_runs.killed(comes_back, writes, command=command) == 2
        async with scored_runs.worker(command=command) as process:
            await all_read(scored_runs, process)
            assert page.value(await process.metrics(), "kp_evaluations_backend_up") == 1
            assert await process.stop() == 0, process.log()
    expected = await wanted(scored_runs, fake)
    assert written(fake) == {run: value for run, value in expected.items() if run != gone}
    assert len(fake.scores) == RUNS - 1
    logs = "".join(log.read_text() for log in scored_runs.folder.glob("*.log"))
    assert f"score of run {gone} refused: " in logs
    assert "hidden" not in logs


async def test_a_command_whose_backend_is_down_ends_as_usual(scored_runs, fake):
    fake.is_down = True
    async with (
        fake.served() as url,
        scored_runs.worker(command=f"evaluations --to {fake.name} {url}") as process,
    ):
        await process.logged("the backend does not take scores: status 503")
        assert await process.stop() == 0, process.log()
    assert await position(scored_runs) == 0
