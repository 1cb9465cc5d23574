"""Traces from an agent's own spans: which spans are a run, and that the agent is never disturbed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    format_trace_id,
    set_span_in_context,
)

from knowledgepulse_worker.otel import TraceExporter, exporter
from knowledgepulse_worker.settings import KafkaSettings, Settings
from knowledgepulse_worker.tools.demo.processes import free_ports
from knowledgepulse_worker.tools.publish import delivery

LOGGER = "knowledgepulse_worker.tools.publish.delivery"


class Agent:
    """An instrumented agent, and the file of its traces."""

    def __init__(self, file, **options):
        self.file = file
        self.exporter = TraceExporter(file, **options)
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self._provider.get_tracer("opentelemetry.instrumentation.openai_v2")

    def agent(self, context=None):
        span = self.tracer.start_span("invoke_agent helper", context)
        span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"})
        return span

    def chat(self, parent, question="What is 2+2?", answer="4"):
        span = self.tracer.start_span("chat", set_span_in_context(parent))
        span.set_attribute("gen_ai.operation.name", "chat")
        if answer:
            span.set_attribute("gen_ai.input.messages", messages("user", question))
            span.set_attribute("gen_ai.output.messages", messages("assistant", answer))
        return span

    def run(self, question="What is 2+2?", answer="4"):
        root = self.agent()
        self.chat(root, question, answer).end()
        root.end()

    def traces(self):
        """End the agent, and return its traces."""
        self._provider.shutdown()
        return list(map(json.loads, self.file.read_text().splitlines())) if self.file.exists() else []


def messages(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def texts(trace):
    return trace["task"]["objective"], trace["outcome"]["result_summary"]


@pytest.fixture
def agent(tmp_path):
    return Agent(tmp_path / "traces.jsonl")


def test_runs_that_overlap_are_apart_and_other_spans_are_passed_over(agent):
    first, second = agent.agent(), agent.agent()
    agent.chat(second, "Second?", "Two.").end()
    agent.chat(first, "First?", "One.").end()
    agent.tracer.start_span("GET /").end()
    second.end()
    first.end()

    traces = agent.traces()

    assert sorted(map(texts, traces)) == [("First?", "One."), ("Second?", "Two.")]
    assert format_trace_id(first.context.trace_id) in {
        trace["metadata"]["span_context"]["trace_id"] for trace in traces
    }
    assert agent.exporter.lost == 0


def test_a_child_that_ends_after_its_root_belongs_to_the_run(agent):
    root = agent.agent()
    chat = agent.chat(root)
    root.end()
    chat.end()

    assert [texts(trace) for trace in agent.traces()] == [("What is 2+2?", "4")]


def test_a_span_with_a_parent_elsewhere_is_a_root(agent, monkeypatch):
    """Of a service that another one called, the parent never ends in this process."""
    monkeypatch.setattr(exporter, "GRACE", 0.0)
    caller = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    root = agent.agent(set_span_in_context(NonRecordingSpan(caller)))
    agent.chat(root).end()
    root.end()

    assert agent.exporter.force_flush()
    assert agent.file.read_text().count("\n") == 1


def test_a_run_without_its_root_is_published_when_it_has_waited_for_long(agent, monkeypatch):
    """A root may never end, such as that of a request whose worker was killed."""
    later = []
    monkeypatch.setattr(agent.exporter._delivery, "call_later", lambda *call: later.append(call))
    request = agent.tracer.start_span("request")
    inner = agent.agent(set_span_in_context(request))
    agent.chat(inner).end()
    inner.end()

    ((seconds, complete),) = later
    assert seconds == exporter.LONGEST_WAIT
    complete()
    request.end()

    assert [texts(trace) for trace in agent.traces()] == [("What is 2+2?", "4")]
    assert [seconds for seconds, _ in later[1:]] == [exporter.GRACE], "the root is a run of its own"


def test_content_that_is_not_captured_is_told_once_with_the_remedy(agent, caplog):
    for _ in range(3):
        agent.run(answer="")

    assert agent.traces() == []
    (told,) = [record.message for record in caplog.records if record.name == LOGGER]
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in told
    assert agent.exporter.lost == 3


def test_what_cannot_be_written_is_counted_and_the_agent_goes_on(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(delivery, "CLOSE_LIMIT", 0.1)
    agent = Agent(tmp_path / "missing" / "traces.jsonl")
    agent.run()

    assert agent.traces() == []
    assert agent.exporter.lost == 1
    assert "cannot be written: No such file or directory" in caplog.text


def test_what_no_broker_takes_waits_in_the_spool_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery, "CLOSE_LIMIT", 0.1)
    settings = Settings(kafka=KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_ports(1)[0]}"))
    agent = Agent(tmp_path / "traces.jsonl")
    agent.exporter._delivery._to = settings
    agent.exporter._delivery._spool = delivery.Spool(tmp_path / "spool")
    agent.run()
    agent.run("And 3+3?", "6")

    agent.traces()

    (waiting,) = (tmp_path / "spool").iterdir()
    assert [texts(json.loads(line))[1] for line in waiting.read_text().splitlines()] == ["4", "6"]
    assert agent.exporter.lost == 0


def test_open_runs_beyond_the_memory_that_they_may_take_are_dropped(agent, monkeypatch, caplog):
    monkeypatch.setattr(exporter, "MAX_BYTES", 1000)
    first, second = agent.agent(), agent.agent()
    agent.chat(first, "First?" + "." * 500).end()
    agent.chat(second, "Second?" + "." * 500).end()
    second.end()

    assert [texts(trace)[0][:7] for trace in agent.traces()] == ["Second?"]
    assert "too many runs are open" in caplog.text
    assert agent.exporter.lost == 1


@pytest.mark.slow
def test_a_run_is_published_only_by_the_process_in_which_it_ends(tmp_path):
    """A process that forks leaves a copy of the spans, of the locks and of no thread."""
    file, script = tmp_path / "traces.jsonl", tmp_path / "agent.py"
    script.write_text(
        "import json, os, sys\n"
        "from opentelemetry import trace\n"
        "from knowledgepulse_worker.otel import record_traces\n"
        "record_traces(sys.argv[1])\n"
        "tracer = trace.get_tracer('agent')\n"
        "def chat(text):\n"
        "    with tracer.start_as_current_span('chat') as span:\n"
        "        said = lambda role: json.dumps([{'role': role, 'content': text}])\n"
        "        span.set_attributes({'gen_ai.operation.name': 'chat',\n"
        "            'gen_ai.input.messages': said('user'), 'gen_ai.output.messages': said('assistant')})\n"
        "with tracer.start_as_current_span('invoke_agent') as root:\n"
        "    root.set_attribute('gen_ai.operation.name', 'invoke_agent')\n"
        "    chat('before')\n"
        "    if child := os.fork():\n"
        "        os.waitpid(child, 0)\n"
        "if not child:\n"
        "    with tracer.start_as_current_span('invoke_agent') as root:\n"
        "        root.set_attribute('gen_ai.operation.name', 'invoke_agent')\n"
        "        chat('in the child')\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", script, file], check=True, timeout=120)

    objectives = sorted(json.loads(line)["task"]["objective"] for line in file.read_text().splitlines())
    assert objectives == ["before", "in the child"]
