"""The process that converts runs: what it returns, and what becomes of a run that it does not survive."""

import json
import os

import pytest

from knowledgepulse_schemas.convert import Options, RunOutcome
from knowledgepulse_worker import child_process
from knowledgepulse_worker.tools.assemble import run_conversion
from knowledgepulse_worker.tools.assemble.run_conversion import (
    CompleteRun,
    ConvertedRun,
    RunConversion,
    convert_run,
)
from support.spans import export, span, spans_of

FACTORY = """
import os, signal, time
from knowledgepulse_worker.tools.assemble import run_conversion

def converting(options):
    convert = run_conversion.converting(options)

    def call(run):
        if b"endless" in run:
            time.sleep(3600)
        signal.setitimer(signal.ITIMER_REAL, 0)  # all others have any time, however busy the machine
        if b"deadly" in run:
            os._exit(3)
        return convert(run)

    return call
"""


@pytest.fixture
def run(real_traces):
    return CompleteRun("1" * 32, has_root=True, exports=[export(spans_of(real_traces[0]))])


async def test_the_traces_are_those_of_this_process(run):
    options = Options(domains={"otlp": "code"}, outcomes={"1": RunOutcome(success=True, confidence=0.5)})

    async with RunConversion(options) as conversion:
        assert await conversion.convert(run) == convert_run(run, options)


@pytest.mark.parametrize(
    ("kind", "failure"),
    [("endless", "its conversion took longer than 20 s"), ("deadly", "its conversion ended the process")],
)
async def test_a_run_that_ends_the_process_has_an_error_and_the_next_is_converted(
    run, kind, failure, tmp_path, monkeypatch
):
    """Strangers write the spans, and one run must stop neither the process nor other runs."""
    (tmp_path / "factory.py").write_text(FACTORY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(run_conversion, "_FACTORY", "factory:converting")
    monkeypatch.setattr(run_conversion, "CONVERSION_LIMIT", 2.0)
    monkeypatch.setattr(child_process, "OVERTIME", 600.0)
    deadly = CompleteRun(kind, has_root=True, exports=[])

    async with RunConversion(Options()) as conversion:
        assert (await conversion.convert(deadly)).errors == [("ConversionError", f"trace {kind}: {failure}")]
        assert len((await conversion.convert(run)).traces) == 1


@pytest.mark.parametrize(
    ("attribute", "scope"),
    [
        *[
            (name, "s")
            for name in ("langsmith.span.kind", "braintrust.input", "opik.metadata", "weave.span.kind")
        ],
        *[(name, "s") for name in ("agentops.span.kind", "mastra.span.type", "crew_key", "ai.toolCall.name")],
        *[(name, "s") for name in ("haystack.pipeline.input_data", "pydantic_ai.all_messages")],
        ("messaging.operation", "autogen-core"),
        ("conversation.id", "codex_cli_rs"),
        ("session.id", "com.anthropic.claude_code.tracing"),
    ],
)
def test_a_run_of_any_agents_instrumentation_is_an_error_and_does_not_vanish(attribute, scope):
    document = json.loads(export([span(b"1" * 16, 0, None, {attribute: "x"}, None)], as_json=True))
    document["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": scope}
    run = CompleteRun("31" * 16, has_root=True, exports=[json.dumps(document).encode()])

    [(_, message)] = convert_run(run, Options()).errors
    assert "an agent's instrumentation" in message


def test_the_spans_of_a_service_that_is_no_agent_are_no_error():
    run = CompleteRun(
        "31" * 16, has_root=True, exports=[export([span(b"1" * 16, 0, None, {"logfire.msg": "x"}, None)])]
    )

    assert convert_run(run, Options()) == ConvertedRun()
