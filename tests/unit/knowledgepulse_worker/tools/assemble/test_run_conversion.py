"""The process that converts runs: what it returns, and what becomes of a run that it does not survive."""

import os

import pytest

from knowledgepulse_convert import Options, RunOutcome
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
@pytest.mark.slow
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


def converted(attributes):
    """Convert a run of one span that no convention describes."""
    exports = [export([span(b"1" * 16, 0, None, attributes, None)])]
    return convert_run(CompleteRun("31" * 16, has_root=True, exports=exports), Options())


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        *[(name, "x") for name in ("gen_ai.request.model", "llm.vendor", "tool_name", "ai.toolCall.name")],
        *[(name, "x") for name in ("vendor.prompt", "gen_ai.usage.completion_tokens", "vendor.all_messages")],
        ("vendor.input", '[{"role": "user", "content": "Weigh it"}]'),
    ],
)
def test_a_run_that_called_a_model_or_a_tool_is_an_error_and_does_not_vanish(attribute, value):
    """An instrumentation that nobody knows yet says so in attributes of its own."""
    [(_, message)] = converted({attribute: value}).errors

    assert "a model or a tool was called" in message


@pytest.mark.parametrize(
    "attributes",
    [
        {"logfire.msg": "x", "user_agent.original": "x", "messaging.message.id": "x", "ui.toolbar": "x"},
        {"gen_ai.operation.name": "create_agent", "gen_ai.request.model": "x"},
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "x"},
    ],
)
def test_a_run_that_called_neither_is_no_error(attributes):
    assert converted(attributes) == ConvertedRun()
