"""Kafka Connect: what its converters make of outputs in a sink, and of their headers in a mirror."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka.structs import ConsumerRecord

from interoperability.part import ROOT, Case, Part, version_of
from knowledgepulse_schemas import last_header
from knowledgepulse_worker.settings import render
from knowledgepulse_worker.tools.demo.processes import start
from support.commands import kp_worker
from support.java_kafka import running_broker
from support.streams import Message, Stream, admin_of, own_settings

# The last release whose file connector and mirror are on Maven Central; these need a runtime of their own.
REQUIRES = (
    "org.apache.kafka:connect-runtime:4.3.1",
    "org.apache.kafka:connect-json:4.3.1",
    "org.apache.kafka:connect-file:4.3.1",
    "org.apache.kafka:connect-mirror:4.3.1",
    "org.slf4j:slf4j-simple:1.7.36",
)
PROGRAM = f"Kafka Connect {version_of(REQUIRES, 'connect-runtime')}"
SINK, MIRROR = f"{PROGRAM}, file sink", f"{PROGRAM}, MirrorSourceConnector"

JSON = "org.apache.kafka.connect.json.JsonConverter"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

UNCHANGED, ENDS = "every byte stays", "the task fails at the first output"
LARGE = "whole numbers of 2^63 and more change"
_TRACES = ROOT / "worker/knowledgepulse_worker/tools/demo/real_traces.jsonl"
_LARGE = 2**63
_LIMIT = 120

_TOLD = "`kp-worker traces list` skips all, and says that their headers are base64"

_WORKER = """
bootstrap.servers={servers}
key.converter={bytes}
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
plugin.discovery=service_load
listeners=http://127.0.0.1:0
"""


def _run(place: Path) -> Iterator[Case]:
    with TemporaryDirectory() as folder, running_broker(print) as broker:
        yield from asyncio.run(_cases(place, broker.bootstrap_servers, Path(folder)))


async def _cases(place: Path, servers: str, folder: Path) -> list[Case]:
    stream = Stream(own_settings(servers, "connect", {"embedding": {"backend": "lexical"}}), folder)
    await stream.create_topics(1)
    traces = [json.loads(line) for line in _TRACES.read_bytes().splitlines()]
    traces[0]["count"] = _LARGE
    raw = await stream.publish([Message(json.dumps(trace).encode(), b"key") for trace in traces])
    outputs = [each for each in await stream.scored(raw) if each.topic == stream.settings.topics.rejected]
    return [
        *[case async for case in _sinks(place, stream, outputs)],
        *[case async for case in _headers(place, outputs)],
        *[case async for case in _mirrors(place, stream, outputs)],
    ]


async def _sinks(place: Path, stream: Stream, outputs: list[ConsumerRecord]) -> AsyncIterator[Case]:
    expected = {
        f"`value.converter={TEXT}`": UNCHANGED,
        f"`value.converter={JSON}`, the default": ENDS,
        f"`value.converter={JSON}`, `value.converter.schemas.enable=false`": LARGE,
    }
    for what, wanted in expected.items():
        converter = dict(
            part.strip("` ").split("=") for part in what.removesuffix(", the default").split(", ")
        )
        file = stream.folder / "sink.txt"
        file.unlink(missing_ok=True)
        sink = {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": outputs[0].topic,
            "file": str(file),
            "consumer.override.isolation.level": "read_committed",
            "consumer.override.group.id": f"sink-{len(what)}",
        }
        async with _connect(place, stream, sink, converter) as log:
            failed = await _written(file, len(outputs), log)
        yield Case(SINK, what, _sunk(_text(file), outputs, failed), wanted)


async def _written(file: Path, lines: int, log: Path) -> bool:
    """Wait until a sink has written all lines; return whether its task failed instead."""
    async with asyncio.timeout(_LIMIT):
        while not (failed := "Task is being killed" in _text(log)) and _text(file).count("\n") < lines:
            await asyncio.sleep(0.2)
    return failed


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def _sunk(text: str, outputs: list[ConsumerRecord], failed: bool) -> str:
    if failed:
        return text or ENDS
    if text.encode().splitlines() == [output.value for output in outputs]:
        return UNCHANGED
    return LARGE if f"count={-_LARGE}" in text else text[:500]


async def _headers(place: Path, outputs: list[ConsumerRecord]) -> AsyncIterator[Case]:
    scores = [last_header(output.headers, "kp-score") or b"" for output in outputs[:10]]
    for what, converter, wanted in (
        (f"`header.converter={SIMPLE}`, the default", SIMPLE, "`kp-score` changes"),
        (f"`header.converter={TEXT}`", TEXT, UNCHANGED),
        (f"`header.converter={BYTES}`", BYTES, UNCHANGED),
    ):
        seen = UNCHANGED if await _converted(place, converter, scores) == scores else "`kp-score` changes"
        yield Case(PROGRAM, what, seen, wanted)


async def _converted(place: Path, converter: str, values: list[bytes]) -> list[bytes]:
    source = Path(__file__).parents[1] / "Headers.java"
    process = await asyncio.create_subprocess_exec(
        *("java", "-cp", f"{place}/jars/*", str(source), converter, *(value.decode() for value in values)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.splitlines()


async def _mirrors(place: Path, stream: Stream, outputs: list[ConsumerRecord]) -> AsyncIterator[Case]:
    servers, topic = stream.settings.kafka.bootstrap_servers, outputs[0].topic
    for number, (converter, wanted) in enumerate(
        (
            (None, _TOLD),
            (BYTES, UNCHANGED),
        )
    ):
        mirror = {
            "name": "mirror",
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": f"copy{number}",
            "target.cluster.alias": "target",
            "source.cluster.bootstrap.servers": servers,
            "target.cluster.bootstrap.servers": servers,
            "topics": topic,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "source.consumer.isolation.level": "read_committed",
            "key.converter": BYTES,
            "value.converter": BYTES,
            **({"header.converter": converter} if converter else {}),
        }
        copy = f"copy{number}.{topic}"
        async with _connect(place, stream, mirror, {"value.converter": BYTES}):
            await _known(servers, copy)
            copied = await stream.arrived(len(outputs), copy)
        same = [(each.value, each.headers) for each in copied] == [
            (each.value, each.headers) for each in outputs
        ]
        seen = UNCHANGED if same else await _listed(stream, copy)
        what = f"`header.converter={converter}`" if converter else "the default of `header.converter`"
        yield Case(MIRROR, what, seen, wanted)


async def _known(servers: str, topic: str) -> None:
    async with asyncio.timeout(_LIMIT), admin_of(servers) as admin:
        while topic not in await admin.list_topics():
            await asyncio.sleep(0.2)


async def _listed(stream: Stream, copy: str) -> str:
    settings = stream.configured(topics={"rejected": copy})
    config = stream.folder / "copy.toml"
    config.write_text(render(settings))
    _, output, errors = await kp_worker("traces", "list", "--config", str(config))
    told = "skipped records are base64: set the header.converter" in errors
    return (
        "`kp-worker traces list` skips all, and says that their headers are base64"
        if told
        else output + errors
    )


@asynccontextmanager
async def _connect(
    place: Path, stream: Stream, connector: Mapping[str, str], converters: Mapping[str, str]
) -> AsyncIterator[Path]:
    """Run a connector in a Connect worker with these converters; yield its log."""
    folder, servers = stream.folder, stream.settings.kafka.bootstrap_servers
    worker = _WORKER.format(servers=servers, folder=folder, bytes=BYTES) + _properties(converters)
    (folder / "connect.properties").write_text(worker)
    (folder / "connector.properties").write_text(_properties(connector))
    (folder / "offsets").unlink(missing_ok=True)
    log = folder / "connect.log"
    with ExitStack() as stack:
        start(
            stack,
            [
                *(
                    shutil.which("java") or "java",
                    "-Xmx512m",
                    "-cp",
                    f"{place}/jars/*",
                    "org.apache.kafka.connect.cli.ConnectStandalone",
                ),
                *(str(folder / "connect.properties"), str(folder / "connector.properties")),
            ],
            log,
        )
        yield log


def _properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


PART = Part(REQUIRES, _run)
