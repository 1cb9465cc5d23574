"""The guards before `contribute`, from the settings to what is on the topics."""

from __future__ import annotations

import asyncio
import json
import os

import psutil
import pytest

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import render
from knowledgepulse_worker.tools.audit import audit
from support import metrics_page as page
from support.commands import kp_worker
from support.hostile_redaction import HOSTILE
from support.streams import READY_LIMIT, Message, headers_of, score_of, source_of

pytestmark = pytest.mark.integration

FUNCTIONS = """
import time

def redact(trace):
    note = trace["task"].pop("note", "")
    if note == "raise":
        raise ValueError(note)
    if note == "hang":
        time.sleep(3600)
    if note == "drop a member":
        del trace["steps"]
    trace["task"]["objective"] = "[redacted]"
    return trace
"""
SECRET = "canary-of-an-objective"
FAILURES = {"raise": "raised", "hang": "timeout", "drop a member": "invalid"}


def values(real_traces, **metadata):
    """Return real traces with members of their metadata replaced."""
    for line in real_traces:
        trace = json.loads(line)
        trace["metadata"] |= metadata
        yield json.dumps(trace).encode()


async def test_only_traces_that_the_policy_lists_are_contributed(make_stream, real_traces, config):
    """The policy gets its guards while the worker runs; the audit and the commands agree about each trace."""
    stream = await make_stream(2, policy={"threshold": 0})
    open_ones = values(real_traces[:8], visibility="org", privacy_level="federated")
    unseen = values(real_traces[:5], visibility="private")
    unlisted = values(real_traces[5:8], visibility="org", privacy_level="private")
    cut_off = values(real_traces[8:10], visibility="org", privacy_level="federated", ending="cut_off")
    values_of_all = [*open_ones, *unseen, *unlisted, *cut_off]
    both = [Message(value, partition=n % 2) for n, value in enumerate(values_of_all)]
    guarded = Policy(
        threshold=0,
        contribute_visibility=["org"],
        contribute_privacy_level=["aggregated", "federated"],
        withhold_endings=["failed", "cut_off"],
    )
    async with stream.worker() as worker:
        raw = await stream.publish(both)
        await stream.outputs(worker, raw)
        changed = worker.settings.model_copy(update={"policy": guarded})
        worker.config.write_text(render(changed))
        await worker.logged(" replaces ")
        before = {(record.partition, record.offset) for record in raw}
        raw = await stream.publish(both)
        outputs = await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    topics = stream.settings.topics
    by_raw = {(record.partition, record.offset): json.loads(record.value) for record in raw}
    for output in outputs:
        metadata = by_raw[source_of(output)]["metadata"]
        private = [name for name in ("visibility", "privacy_level") if metadata[name] == "private"]
        reasons = [*private, *(["ending"] if metadata.get("ending") == "cut_off" else [])]
        withheld = reasons[0] if reasons and source_of(output) not in before else None
        assert output.topic == (topics.rejected if withheld else topics.contribute)
        assert score_of(output).get("withheld", "no") == (withheld or "no")
    assert len(outputs) == 36

    report = await audit(stream.settings)  # whose own policy has no guards
    assert (report.missing, report.differing) == (0, 0)
    assert sum(partition.unknown_policy for partition in report.partitions) == 0

    file = config(stream.settings)
    status, shown, errors = await kp_worker("policy", "show", "--config", file)
    assert status == 0, errors
    assert f"policy {guarded.digest}, in force since " in shown
    assert "  contribute_visibility: private, org, network → org" in shown
    assert "  contribute_privacy_level: aggregated, federated, private → aggregated, federated" in shown
    assert "  withhold_endings: none → failed, cut_off" in shown
    policy = worker.config  # has the guards
    rescored = await kp_worker("policy", "rescore", "--policy", str(policy), "--json", "--config", file)
    routes = json.loads(rescored[1])["routes"]
    assert sum(route["contribute → rejected"] for route in routes.values()) == 10
    withheld = next(output for output in outputs if "withheld" in score_of(output))
    source = headers_of(withheld)["kp-source"]
    _, explained, _ = await kp_worker("traces", "show", source, "--policy", str(policy), "--config", file)
    assert f"; {score_of(withheld)['withheld']} private is withheld: rejected" in explained
    assert f"policy {guarded.digest}:" in explained


@pytest.fixture
def redacting(make_stream, tmp_path):
    """Return a stream whose worker redacts with the function above, and the worker's environment."""

    async def make(partitions):
        (tmp_path / "privacy.py").write_text(FUNCTIONS)
        stream = await make_stream(
            partitions,
            policy={"threshold": 0},
            topics={"redacted": f"redacted-{os.urandom(4).hex()}"},
            redaction={"function": "privacy:redact", "timeout": 1},
        )
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        return stream, {"PYTHONPATH": path}

    return make


def with_note(line, note=None):
    trace = json.loads(line)
    trace["task"] = {"objective": SECRET} | ({"note": note} if note else {})
    return trace


def started(mark):
    """Return the programs that hostile functions have started, and that run."""
    running = psutil.process_iter(["name", "environ"])  # environ is None of one that has ended
    sleeping = (process for process in running if process.info["name"] == "sleep")
    return [process for process in sleeping if mark.items() <= (process.info["environ"] or {}).items()]


async def test_a_worker_whose_redaction_function_is_hostile_stops_in_order(make_stream, real_traces):
    """Each way to hold up a stop: what was left behind by calls, and a call that does not end."""
    stream = await make_stream(
        1,
        embedding={"backend": "none"},
        policy={"threshold": 0},
        topics={"redacted": f"redacted-{os.urandom(4).hex()}"},
        redaction={"function": "support.hostile_redaction:hostile", "timeout": 0.5},
    )
    mark = {"HOSTILE": stream.settings.kafka.group}
    ending_last = sorted(HOSTILE, key=lambda how: HOSTILE[how] not in ("crashed", "timeout"))

    def hostile(ways):
        for line, how in zip(real_traces, ways, strict=False):
            yield Message(
                json.dumps(with_note(line) | {"task": {"objective": f"be hostile: {how}"}}).encode()
            )

    async with stream.worker(environment=mark) as worker:
        await stream.publish(hostile(ending_last))
        await worker.published(len(HOSTILE))
        assert await worker.stop() == 0
    copies = await stream.read(stream.settings.topics.redacted)
    async with stream.worker(environment=mark) as worker:
        await stream.publish(hostile(["mask fork thread start wait"]))
        async with asyncio.timeout(READY_LIMIT):
            while not started(mark):
                await asyncio.sleep(0.05)
        assert await worker.stop() == 0

    assert [headers_of(copy).get("kp-redaction-error") for copy in copies] == [
        HOSTILE[how] for how in ending_last
    ]
    assert started(mark) == [], "the call's processes ended with it"


async def test_every_contributed_trace_has_a_redacted_copy_or_a_record_that_says_why_not(
    redacting, real_traces
):
    stream, environment = await redacting(2)
    notes = [None, "raise", None, "hang", None, "drop a member", None, None]
    messages = [
        Message(
            json.dumps(with_note(line, note)).encode(),
            SECRET.encode(),
            partition=number % 2,
            headers=[("h", SECRET.encode())],
        )
        for number, (line, note) in enumerate(zip(real_traces, notes, strict=False))
    ]
    raw = await stream.publish([*messages, Message(b"no trace", partition=0)])
    topics = stream.settings.topics
    async with stream.worker(environment=environment) as worker:
        await worker.published(len(raw))
        metrics = await worker.metrics()
        assert await worker.stop() == 0
        log = worker.log()

    contributed = await stream.read(topics.contribute)
    copies = await stream.read(topics.redacted)
    by_source = {headers_of(copy)["kp-source"]: copy for copy in copies}
    assert len(copies) == len(by_source) == len(contributed) == len(notes)
    for output in contributed:
        copy = by_source[headers_of(output)["kp-source"]]
        trace = json.loads(output.value)
        failure = FAILURES.get(trace["task"].get("note"))
        assert headers_of(copy).get("kp-redaction-error") == failure
        assert (copy.partition, copy.timestamp) == (output.partition, output.timestamp)
        assert SECRET not in repr(copy)
        if failure:
            assert (copy.key, copy.value) == (None, None)
        else:
            assert json.loads(copy.value) == trace | {"task": {"objective": "[redacted]"}}
            assert copy.key == trace["id"].encode()
        [original] = [
            record.value for record in raw if (record.partition, record.offset) == source_of(output)
        ]
        assert trace | {"metadata": None} == json.loads(original) | {"metadata": None}
    assert page.value(metrics, "kp_redactions_total", result="ok") == len(notes) - len(FAILURES)
    for reason in FAILURES.values():
        assert page.value(metrics, "kp_redactions_total", result=reason) == 1
    assert SECRET not in log
    assert (await stream.committed()) == {0: 5, 1: 4}
    report = await audit(stream.settings)
    assert (report.missing, report.differing) == (0, 0)
