"""Write a trace as a company's serializer does, or read an output as its consumer does.

Run in the environment of the part `wrapping`: PROGRAM wrap|unwrap TOPIC HEADERS REGISTRY SCHEMA. The
trace, or the output's value, is read from standard input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cloudevents.core.bindings.kafka import KafkaMessage, from_structured_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/agents/builder-7",
    "type": "org.example.trace",
    "datacontenttype": "application/json",
}


def main(program: str, verb: str, topic: str, headers: str, registry: str, schema_file: str) -> None:
    given = sys.stdin.buffer.read()
    client, schema = SchemaRegistryClient({"url": registry}), Path(schema_file).read_text()
    received = {name: text.encode("latin-1") for name, text in json.loads(headers).items()}
    context = SerializationContext(topic, MessageField.VALUE)
    if verb == "wrap" and program == "confluent":
        _write(JSONSerializer(schema, client)(json.loads(given), context) or b"", {})
    elif verb == "wrap":
        message = to_structured_event(CloudEvent(EVENT, json.loads(given)))
        _write(message.value, message.headers)
    elif program == "confluent":
        reading = JSONDeserializer(schema, schema_registry_client=client)
        print(json.dumps(reading(given, context)))
    else:
        print(json.dumps(from_structured_event(KafkaMessage(received, None, given)).get_data()))


def _write(value: bytes, headers: dict[str, Any]) -> None:
    texts = {name: text.decode("latin-1") for name, text in headers.items()}
    print(json.dumps({"value": value.hex(), "headers": texts}))


main(*sys.argv[1:])
