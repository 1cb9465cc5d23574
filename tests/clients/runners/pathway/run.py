import os

import pathway as pw

TASK = os.environ["TASK"]
KAFKA = {"bootstrap.servers": os.environ["KAFKA"]}


def read(mode: str) -> None:
    settings = {
        **KAFKA,
        "group.id": f"{TASK}-{os.environ['GROUP']}" if TASK == "bounded" else os.environ["GROUP"],
        "auto.offset.reset": "earliest",
    }
    table = pw.io.kafka.read(
        settings, topic=os.environ["TOPIC"], format="plaintext", mode=mode, autogenerate_key=True
    )
    pw.io.subscribe(table, on_change=lambda key, row, time, is_addition: print(row["data"], flush=True))


def publish() -> None:
    settings = {**KAFKA, **({"partitioner": "murmur2_random"} if os.environ["SETTING"] else {})}
    for topic in os.environ["TOPICS"].split(","):
        rows = [(key, "value") for key in os.environ["KEYS"].split(",") * 3]
        table = pw.debug.table_from_rows(pw.schema_from_types(key=str, value=str), rows)
        pw.io.kafka.write(table, settings, topic, format="plaintext", key=table.key, value=table.value)


{"read": lambda: read("streaming"), "bounded": lambda: read("static"), "publish": publish}[TASK]()
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
