"""A bounded read is a batch query; a read is a structured stream."""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", ",".join(map(str, Path(sys.argv[1], "jars").glob("*.jar"))))
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
KAFKA = {"kafka.bootstrap.servers": os.environ["KAFKA"]}
LEVEL = {"kafka.isolation.level": "read_committed"} if os.environ["SETTING"] else {}


def printed(records: DataFrame, _: int = 0) -> None:
    for record in records.collect():
        print(bytes(record.value).decode(), flush=True)


def read() -> None:
    options = {**KAFKA, **LEVEL, "subscribe": os.environ["TOPIC"], "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load()
    records.writeStream.foreachBatch(printed).start().awaitTermination()


def bounded() -> None:
    printed(spark.read.format("kafka").options(**KAFKA, **LEVEL, subscribe=os.environ["TOPIC"]).load())


def publish() -> None:
    records = [(key, "value") for key in os.environ["KEYS"].split(",") * 3]
    for topic in os.environ["TOPICS"].split(","):
        frame = spark.createDataFrame(records, "key string, value string")
        frame.write.format("kafka").options(**KAFKA, topic=topic).save()


{"read": read, "bounded": bounded, "publish": publish}[os.environ["TASK"]]()
