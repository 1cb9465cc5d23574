"""Conventions for values, from a company's serializer by way of the worker to its consumer."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from aiokafka.structs import ConsumerRecord

from interoperability.apicurio import JAVA, running_apicurio
from interoperability.part import ROOT, Case, Part, version_of
from knowledgepulse_worker.settings import render
from support.commands import kp_worker
from support.java_kafka import running_broker
from support.streams import Message, Stream, headers_of, own_settings
from support.wrapped import plain_trace

REQUIRES = (
    JAVA,
    "confluent-kafka[json,schemaregistry]==2.16.1",
    "cloudevents==2.2.0",
    "org.apache.kafka:connect-json:4.4.0",
)
READ = "a dead letter that names it; replayed under the setting, the consumer reads it with its score"
_FOLDER = ROOT / "tests/interoperability"
_SCHEMA = ROOT / "schemas/knowledgepulse_schemas/reasoning-trace.draft-07.schema.json"
_SCORING = {"embedding": {"backend": "lexical"}, "policy": {"threshold": 0.0}}
_CONNECT = "`JsonConverter`, `schemas.enable={}`"

_Ask = Callable[[str, str, ConsumerRecord | None], bytes]
"""Has a program write a trace (``wrap``) or read an output (``unwrap``); gets the topic and the output."""


class _Convention(NamedTuple):
    program: str
    what: str
    unwrap: Sequence[str]
    form: str
    ask: _Ask


def _run(place: Path) -> Iterator[Case]:
    with running_apicurio(place) as registry, running_broker(print) as kafka:
        for convention in _conventions(place, f"{registry}/apis/ccompat/v7"):
            seen = asyncio.run(_seen(kafka.bootstrap_servers, convention))
            unwrap = json.dumps(convention.unwrap)
            yield Case(convention.program, f"{convention.what}, `unwrap = {unwrap}`", seen, READ)


def _conventions(place: Path, registry: str) -> Iterator[_Convention]:
    def python(name: str) -> _Ask:
        def ask(verb: str, topic: str, output: ConsumerRecord | None) -> bytes:
            headers = {key: (text or b"").decode() for key, text in output.headers} if output else {}
            script = _FOLDER / "wrapping_programs.py"
            command = [
                place / "bin/python",
                script,
                name,
                verb,
                topic,
                json.dumps(headers),
                registry,
                _SCHEMA,
            ]
            return _output(command, output)

        return ask

    def connect(has_schemas: str) -> _Ask:
        def ask(verb: str, _topic: str, output: ConsumerRecord | None) -> bytes:
            classpath = ["java", "-cp", f"{place}/jars/*"]
            return _output([*classpath, _FOLDER / "Converters.java", verb, has_schemas], output)

        return ask

    confluent = f"confluent-kafka {version_of(REQUIRES, 'confluent-kafka')}"
    yield _Convention(
        confluent, "`JSONSerializer`, `JSONDeserializer`", ["frame"], "registry_json", python("confluent")
    )
    cloudevents = f"cloudevents {version_of(REQUIRES, 'cloudevents')}"
    yield _Convention(
        cloudevents, "CloudEvents in structured mode", ["/data"], "cloudevent", python("cloudevents")
    )
    converter = f"Kafka Connect {version_of(REQUIRES, 'connect-json')}"
    yield _Convention(converter, _CONNECT.format("true"), ["/payload", "text"], "connect", connect("true"))
    yield _Convention(converter, _CONNECT.format("false"), ["text"], "text", connect("false"))


def _output(command: Sequence[object], output: ConsumerRecord | None) -> bytes:
    given = plain_trace() if output is None else output.value
    return subprocess.run([*map(str, command)], input=given, stdout=subprocess.PIPE, check=True).stdout


async def _seen(servers: str, convention: _Convention) -> str:
    """Have a worker refuse what a program writes, the letter replayed, and the program read the output."""
    with TemporaryDirectory() as folder:
        stream = Stream(own_settings(servers, "wrapping", _SCORING), Path(folder))
        topics = stream.settings.topics
        await stream.create_topics(1)
        written = json.loads(await asyncio.to_thread(convention.ask, "wrap", topics.raw, None))
        headers = [(name, text.encode()) for name, text in written["headers"].items()]
        await stream.publish([Message(bytes.fromhex(written["value"]), b"builder-7", headers=headers)])
        (letter,) = await stream.scored(await stream.read(topics.raw))
        if headers_of(letter).get("kp-form") != convention.form:
            return str(headers_of(letter))
        reading = stream.configured(records={"unwrap": list(convention.unwrap)})
        config = Path(folder) / "reading.toml"
        config.write_text(render(reading))
        status, _, errors = await kp_worker("dead-letters", "replay", "--config", str(config))
        if status != 0:
            return errors
        await stream.scored(await stream.read(topics.raw), reading)
        (scored,) = await stream.read(topics.contribute)
        document = json.loads(await asyncio.to_thread(convention.ask, "unwrap", topics.contribute, scored))
        score = document["metadata"]["quality_score"]
        return READ if json.loads(headers_of(scored)["kp-score"])["score"] == score else f"score {score}"


PART = Part(REQUIRES, _run)
