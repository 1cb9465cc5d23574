"""Conventions for values, from a company's serializer by way of the worker to its consumer."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    "org.apache.kafka:connect-runtime:4.4.0",
    "io.debezium:debezium-connect-plugins:3.6.3.Final",
    "io.apicurio:apicurio-registry-jsonschema-serde-kafka:3.1.7",
    "io.cloudevents:cloudevents-kafka:4.0.1",
    "io.cloudevents:cloudevents-json-jackson:4.0.1",
    "org.springframework.kafka:spring-kafka:4.1.2",
    "tools.jackson.core:jackson-databind:3.1.7",
    # One release for all of them: the nearest in the graph would be several.
    "com.fasterxml.jackson.core:jackson-core:2.21.2",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
)
READ = "a dead letter that names it; replayed under the setting, the consumer reads it with its score"
WITHOUT = "the same, but the consumer reads it without its score"
BARE = "scored as it is; the consumer reads it with its score"
REFUSED = "scored as it is; the consumer refuses the producer's class"
_REFUSAL = 3
"""The status of a program that refuses what it reads."""

_FOLDER = ROOT / "tests/interoperability"
_SCHEMA = ROOT / "schemas/knowledgepulse_schemas/reasoning-trace.draft-07.schema.json"
_SCORING = {"embedding": {"backend": "lexical"}, "policy": {"threshold": 0.0}}
_Ask = Callable[[str, str, ConsumerRecord | None], bytes]
"""Has a program write a trace (``wrap``) or read an output (``unwrap``); gets the topic and the output."""


class _Convention(NamedTuple):
    """How a program wraps a trace.

    Attributes:
        package: its package, of :data:`REQUIRES`.
        program: its name.
        what: what it was given, in Markdown.
        call: what the scripts call it.
        unwrap: the steps that lead to the trace; none for a value that is bare.
        form: the form by which the dead letter names it.
        settings: more of ``[records]``.
        expected: what becomes of it.
    """

    package: str
    program: str
    what: str
    call: str
    unwrap: Sequence[str] = ()
    form: str | None = None
    settings: Mapping[str, str] = {}
    expected: str = READ

    def case(self, seen: str) -> Case:
        settings = {"unwrap": list(self.unwrap)} if self.unwrap else {}
        given = [
            self.what,
            *(f"`{name} = {json.dumps(value)}`" for name, value in (settings | self.settings).items()),
        ]
        program = f"{self.program} {version_of(REQUIRES, self.package).removesuffix('.Final')}"
        return Case(program, ", ".join(given), seen, self.expected)


_PAYLOAD_TEXT, _BARE_OUTPUT = ("/payload", "text"), {"output": "bare"}
_CONFLUENT, _CONNECT = ("confluent-kafka[", "confluent-kafka"), ("connect-json", "Kafka Connect")
_APICURIO = ("apicurio-registry-jsonschema-serde-kafka", "Apicurio's serde")
_SPRING = ("spring-kafka", "Spring for Apache Kafka")
_SPRING_SERDE = "`JacksonJsonSerializer`, `JacksonJsonDeserializer`"
_STRUCT = "`JsonConverter` with a struct, `schemas.enable=true`"
_TEXT = "`JsonConverter` with a text, `schemas.enable={}`"
_SERDE = "`JsonSchemaKafkaSerializer`, `JsonSchemaKafkaDeserializer`"
PYTHON = (
    _Convention(*_CONFLUENT, "`JSONSerializer`, `JSONDeserializer`", "confluent", ["frame"], "registry_json"),
    _Convention(
        "cloudevents==", "CloudEvents for Python", "structured mode", "cloudevents", ["/data"], "cloudevent"
    ),
)
JAVA_PROGRAMS = (
    _Convention(
        "cloudevents-kafka", "CloudEvents for Java", "structured mode", "cloudevents", ["/data"], "cloudevent"
    ),
    _Convention(*_APICURIO, _SERDE, "apicurio", ["frame"], "registry_json"),
    _Convention(
        *_APICURIO, f"{_SERDE}, `apicurio.registry.headers.enabled=true`", "apicurio-headers", expected=BARE
    ),
    _Convention(
        "debezium-connect-plugins",
        "Debezium",
        "the outbox router, then `JsonConverter`",
        "debezium",
        _PAYLOAD_TEXT,
        "connect",
    ),
    _Convention(*_SPRING, f"{_SPRING_SERDE}, the defaults", "spring-types", expected=REFUSED),
    _Convention(
        *_SPRING,
        f"{_SPRING_SERDE}, `spring.json.use.type.headers=false`, `spring.json.value.default.type`",
        "spring",
        expected=BARE,
    ),
    _Convention(
        *_SPRING,
        "`JacksonJsonSerializer` with a text, `JacksonJsonDeserializer`",
        "spring-text",
        ["text"],
        "text",
    ),
    _Convention(*_CONNECT, _TEXT.format("true"), "connect-schemas", _PAYLOAD_TEXT, "connect"),
    _Convention(*_CONNECT, _TEXT.format("false"), "connect-text", ["text"], "text"),
    _Convention(*_CONNECT, _STRUCT, "connect-struct", ["/payload"], "connect", expected=WITHOUT),
    _Convention(*_CONNECT, _STRUCT, "connect-struct", ["/payload"], "connect", _BARE_OUTPUT),
)


def _run(place: Path) -> Iterator[Case]:
    python = [place / "bin/python", _FOLDER / "wrapping_programs.py"]
    java = ["java", "-cp", f"{place}/jars/*", _FOLDER / "WrappingPrograms.java"]
    with running_apicurio(place) as registry, running_broker(print) as kafka:
        for command, conventions, address in (
            (python, PYTHON, f"{registry}/apis/ccompat/v7"),
            (java, JAVA_PROGRAMS, f"{registry}/apis/registry/v3"),
        ):
            for convention in conventions:
                ask = _asking([*command, convention.call], address)
                yield convention.case(asyncio.run(_seen(kafka.bootstrap_servers, convention, ask)))


def _asking(command: Sequence[object], registry: str) -> _Ask:
    def ask(verb: str, topic: str, output: ConsumerRecord | None) -> bytes:
        # A producer may use bytes as it likes; here, only texts are read again.
        headers = {key: (text or b"").decode("latin-1") for key, text in output.headers} if output else {}
        given = plain_trace() if output is None else output.value
        whole = [*command, verb, topic, json.dumps(headers), registry, _SCHEMA]
        return subprocess.run([*map(str, whole)], input=given, stdout=subprocess.PIPE, check=True).stdout

    return ask


async def _seen(servers: str, convention: _Convention, ask: _Ask) -> str:
    """Have a worker refuse what a program writes, the letter replayed, and the program read the output."""
    with TemporaryDirectory() as folder:
        stream = Stream(own_settings(servers, "wrapping", _SCORING), Path(folder))
        topics = stream.settings.topics
        await stream.create_topics(1)
        written = json.loads(await asyncio.to_thread(ask, "wrap", topics.raw, None))
        headers = [(name, text.encode("latin-1")) for name, text in written["headers"].items()]
        await stream.publish([Message(bytes.fromhex(written["value"]), b"builder-7", headers=headers)])
        (first,) = await stream.scored(await stream.read(topics.raw))
        if convention.form is not None:
            if headers_of(first).get("kp-form") != convention.form:
                return str(headers_of(first))
            reading = stream.configured(records={"unwrap": list(convention.unwrap), **convention.settings})
            config = Path(folder) / "reading.toml"
            config.write_text(render(reading))
            status, _, errors = await kp_worker("dead-letters", "replay", "--config", str(config))
            if status != 0:
                return errors
            await stream.scored(await stream.read(topics.raw), reading)
        return await _read(stream, convention, ask)


async def _read(stream: Stream, convention: _Convention, ask: _Ask) -> str:
    """Have the program read the output; return what it found."""
    topic = stream.settings.topics.contribute
    (scored,) = await stream.read(topic)
    try:
        document = json.loads(await asyncio.to_thread(ask, "unwrap", topic, scored))
    except subprocess.CalledProcessError as error:
        if error.returncode != _REFUSAL:
            raise
        return REFUSED
    score = document["metadata"].get("quality_score")
    if score is None:
        return WITHOUT
    if json.loads(headers_of(scored)["kp-score"])["score"] != score:
        return f"score {score}"
    return BARE if convention.form is None else READ


PART = Part(REQUIRES, _run)
