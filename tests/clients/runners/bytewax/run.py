import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource

KAFKA = [os.environ["KAFKA"]]
flow = Dataflow("flow")


def read(*, tail: bool) -> None:
    records = op.input("read", flow, KafkaSource(KAFKA, [os.environ["TOPIC"]], tail=tail))
    op.output("print", op.map("value", records, lambda record: record.value.decode()), StdOutSink())


def publish() -> None:
    config = {"partitioner": "murmur2_random"} if os.environ["SETTING"] else {}
    records = [
        KafkaSinkMessage(key.encode(), b"value", topic)
        for topic in os.environ["TOPICS"].split(",")
        for key in os.environ["KEYS"].split(",") * 3
    ]
    op.output("publish", op.input("records", flow, TestingSource(records)), KafkaSink(KAFKA, None, config))


{"read": lambda: read(tail=True), "bounded": lambda: read(tail=False), "publish": publish}[
    os.environ["TASK"]
]()
