"""The commands `policy` and `traces` on real topics."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic

from knowledgepulse_curator.labelling.traces_to_label import traces_to_label
from knowledgepulse_curator.labels.labelled_inputs import LabelledInputs
from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.kafka.worker_topics import policies_topic_name
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import render
from knowledgepulse_worker.tools.audit import audit
from support.commands import invoked
from support.streams import Message, admin_of, headers_of, score_of

pytestmark = pytest.mark.integration

TRACES = 16


@pytest.fixture
def kp_worker(config):
    """Run a command and return its result."""

    return lambda stream, *arguments: invoked(*arguments, "--config", config(stream.settings))


def output(result):
    """Return the output of a successful command."""
    assert result.exit_code == 0, result.exception
    return result.stdout


@pytest.fixture
async def stream(make_stream, real_traces):
    """Return a stream of scored traces, one of them published twice."""
    stream = await make_stream(2)
    messages = [Message(line, b"key", partition=n % 2) for n, line in enumerate(real_traces[:TRACES])]
    raw = await stream.publish(messages)
    await stream.scored(raw)
    repeat = (await stream.read(stream.settings.topics.rejected))[0]
    options = {"key": repeat.key, "timestamp_ms": repeat.timestamp, "headers": [*repeat.headers]}
    await stream.write(repeat.topic, repeat.value, **options)
    return stream


def in_order(report):
    """Return a report with its flips in one order; a command may read the topics one by one or by offset."""
    return {**report, "flips": sorted(report["flips"], key=lambda flip: flip["source"])}


async def create(stream, *names):
    async with admin_of(stream.settings.kafka.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, 2, 1) for name in names])


async def test_tune_rescore_evaluate_and_show_on_topics(stream, kp_worker, config, real_traces, tmp_path):
    topics = stream.settings.topics
    scored = await stream.read(topics.contribute, topics.rejected)
    group = stream.settings.kafka.group

    # Tune: each trace counts once, however often it was published.
    result = await kp_worker(stream, "policy", "tune", "--json", "--target", "0.5", "--since", "1h")
    assert "skipped 1 records that repeat earlier ones" in result.stderr
    tuning = json.loads(output(result))
    assert tuning["domains"]["customer_service"]["traces"] == TRACES

    # So few traces tell no threshold.
    assert tuning["proposed"]["domains"]["customer_service"]["share"] == 0.5

    # Rescore: a report at first, then records in topics of their own.
    scores = {headers_of(record)["kp-source"]: score_of(record)["score"] for record in scored}
    middle = sorted(scores.values())[TRACES // 2]
    proposed = tmp_path / "proposed.toml"
    proposed.write_text(f"[policy]\nthreshold = {middle}\n")
    await create(stream, f"{group}-a", f"{group}-b")
    named = ("--policy", proposed, "--json", "--contribute", f"{group}-a", "--rejected", f"{group}-b")
    report = json.loads(output(await kp_worker(stream, "policy", "rescore", *named[:3])))
    assert await stream.read(f"{group}-a", f"{group}-b") == []
    published = json.loads(output(await kp_worker(stream, "policy", "rescore", *named)))
    assert in_order(published) == in_order(report)
    again = await stream.read(f"{group}-a", f"{group}-b")
    assert len(again) == report["traces"] == TRACES
    assert sum(record.topic.endswith("-a") for record in again) == TRACES / 2
    before = {headers_of(record)["kp-source"]: record for record in scored}
    for rescored in again:
        old = before[headers_of(rescored)["kp-source"]]
        assert (rescored.key, rescored.partition, rescored.timestamp, rescored.value) == (
            (old.key, old.partition, old.timestamp, old.value)
        )
        assert score_of(rescored)["score"] == score_of(old)["score"]
        assert headers_of(rescored)["kp-policy"] == report["policy"] != Policy().digest
    live = ("--contribute", topics.contribute, "--rejected", f"{group}-b")
    refused = await kp_worker(stream, "policy", "rescore", "--policy", proposed, *live)
    assert f"{topics.contribute} is one of the workers' topics" in str(refused.exception)
    assert len(await stream.read(topics.contribute, topics.rejected)) == len(scored)

    # Evaluate, with labels from a topic; one of them is withdrawn.
    labels = f"{group}-labels"
    await create(stream, labels)
    for number, line in enumerate(real_traces[:TRACES]):
        label = {"id": json.loads(line)["id"], "keep": number % 2 == 0, "source": "me"}
        await stream.write(labels, json.dumps(label).encode(), key=label["id"].encode())
    await stream.write(labels, None, key=label["id"].encode())
    evaluation = json.loads(
        output(await kp_worker(stream, "policy", "evaluate", "--json", "--labels-topic", labels))
    )
    assert evaluation["sources"] == {"me": TRACES - 1}
    assert evaluation["unlabelled"] == 1
    fitted = json.loads((await kp_worker(stream, "policy", "fit", "--json", "--labels-topic", labels)).stdout)
    assert fitted["domains"]["customer_service"]["traces"] == TRACES - 1

    # Accept them as the reference, from which they do not differ, and hand them out with their steps.
    reference = tmp_path / "reference.json"
    output(await kp_worker(stream, "policy", "drift", "--accept", reference))
    found = json.loads(output(await kp_worker(stream, "policy", "drift", "--json", "--reference", reference)))
    assert {(drift["traces"], drift["reference"], drift["distance"]) for drift in found} == {
        (TRACES, TRACES, 0)
    }
    given = LabelledInputs(config=Path(config(stream.settings)))
    sample = await asyncio.to_thread(traces_to_label, given, {}, Policy(), TRACES)
    assert sample
    assert [json.loads(record.value)["id"] for record in sample] == [trace.record.id for trace in sample]

    # List and show.
    listed = [
        json.loads(line) for line in output(await kp_worker(stream, "traces", "list", "--json")).splitlines()
    ]
    assert {trace["id"] for trace in listed} == {json.loads(line)["id"] for line in real_traces[:TRACES]}
    trace = listed[0]
    by_id = output(await kp_worker(stream, "traces", "show", trace["id"]))
    assert f"objective: {trace['content']['objective']}" in by_id
    assert f"from {trace['source']} at 20" in by_id
    assert f"policy {Policy().digest}:" in by_id
    assert output(await kp_worker(stream, "traces", "show", trace["source"])) == by_id
    assert await followed(config(stream.settings)) == {trace["id"] for trace in listed}


async def followed(settings):
    """Return the ids that `traces list --follow` prints; then Ctrl-C ends it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knowledgepulse_worker.cli.entry"),
        *("traces", "list", "--follow", "--json", "--config", settings),
        stdout=PIPE,
    )
    lines = [json.loads(await process.stdout.readline()) for _ in range(TRACES)]
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    return {line["id"] for line in lines}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("policy", "tune"), "{contribute} and {rejected} contain no scored traces"),
        (
            ("policy", "tune", "--since", "1h"),
            "{contribute} and {rejected} contain no scored traces of that period",
        ),
        (("traces", "show", "kp:trace:1"), "no scored trace matches 'kp:trace:1'"),
        (
            ("policy", "evaluate", "--labels-topic", "no-such-topic"),
            "missing: no-such-topic; create it first",
        ),
        (("policy", "evaluate", "--labels-topic", "{raw}"), "{raw} contains no labels"),
    ],
)
async def test_an_empty_topic_is_a_one_line_error(make_stream, kp_worker, arguments, message):
    stream = await make_stream(1)
    names = stream.settings.topics.model_dump()

    result = await kp_worker(stream, *(argument.format(**names) for argument in arguments))

    assert isinstance(result.exception, EXPECTED)
    assert (str(result.exception), result.stdout) == (message.format(**names), "")


async def test_each_record_is_audited_under_the_policy_that_scored_it(make_stream, kp_worker, real_traces):
    """Policies change by a restart, and while a worker runs; the settings of the audit are yet another's.

    A stranger's record among the policies stops neither workers nor tools.
    """
    stream = await make_stream(2)
    batches = [real_traces[start : start + 8] for start in range(0, 24, 8)]

    async def publish(batch):
        return await stream.publish(Message(line, partition=n % 2) for n, line in enumerate(batch))

    raw = await publish(batches[0])
    async with stream.worker(stream.configured(policy={"threshold": 0.4})) as worker:
        await stream.outputs(worker, raw)
    await stream.write(policies_topic_name(stream.settings.kafka.group), b"a stranger's", key=b"key")
    async with stream.worker(stream.configured(policy={"threshold": 0.5})) as worker:
        raw = await publish(batches[1])
        await stream.outputs(worker, raw)
        changed = worker.settings.model_copy(update={"policy": Policy(threshold=0.6)})
        worker.config.write_text(render(changed))
        await worker.logged(" replaces ")
        raw = await publish(batches[2])
        outputs = await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    used = [Policy(threshold=threshold).digest for threshold in (0.4, 0.5, 0.6)]
    assert {headers_of(output)["kp-policy"] for output in outputs} == {*used}
    report = await audit(stream.settings)
    assert (report.missing, report.differing) == (0, 0)
    assert sum(partition.unknown_policy for partition in report.partitions) == 0

    history = output(await kp_worker(stream, "policy", "history"))
    assert [line.split()[-1] for line in history.splitlines() if "policy" in line] == used
    assert "every domain: threshold 0.4 → 0.5" in history
    assert f"policy {used[2]}, in force since " in output(await kp_worker(stream, "policy", "show"))
    assert f"policy {used[0]}" in output(await kp_worker(stream, "policy", "show", used[0][:6]))
    assert "every domain: threshold 0.4 → 0.6" in output(
        await kp_worker(stream, "policy", "diff", used[0], used[2])
    )
    by_policy = {headers_of(output)["kp-policy"]: headers_of(output)["kp-source"] for output in outputs}
    for digest, source in by_policy.items():
        explanation = output(await kp_worker(stream, "traces", "show", source))
        assert f"policy {digest}:\n  complexity " in explanation
        assert " × 0.2 " in explanation
    unknown = await kp_worker(stream, "policy", "show", "ffffffffffff")
    assert str(unknown.exception).startswith("no policy in force begins with 'ffffffffffff'; known: ")


async def test_a_promise_holds_until_labels_that_come_late_withdraw_it(
    stream, kp_worker, real_traces, tmp_path
):
    labels = f"{stream.settings.kafka.group}-labels"
    await create(stream, labels)
    evaluation, policy = tmp_path / "evaluation.json", tmp_path / "all.toml"
    policy.write_text("[policy]\nthreshold = 0.0\n")
    command = ("policy", "evaluate", "--labels-topic", labels, "--policy", policy, "--json")

    async def label(lines, **members):
        for number, line in enumerate(lines):
            told = {"id": json.loads(line)["id"], "source": "ann", "group": f"{number} {members}"} | members
            await stream.write(labels, json.dumps(told).encode(), key=told["id"].encode())

    async def outcome(*options):
        evaluation.write_text(output(await kp_worker(stream, *command, *options)))
        return json.loads(evaluation.read_text())["promises"]["customer_service"]["outcome"]

    await label(real_traces[:TRACES], keep=True, sampling="random")
    assert await outcome("--promise", "0.7") == "promised"

    later = real_traces[TRACES : 2 * TRACES]
    await stream.scored(await stream.publish([Message(line, b"key", partition=0) for line in later]))
    assert await outcome("--watch", evaluation) == "promised"
    await label(later, keep=False)  # complaints that nobody asked for
    assert await outcome("--watch", evaluation) == "promised"
    await label(later, keep=False, sampling="passing")
    assert await outcome("--watch", evaluation) == "withdrawn"
