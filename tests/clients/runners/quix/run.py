import os

from quixstreams import Application

app = Application(
    broker_address=os.environ["KAFKA"],
    consumer_group=os.environ.get("GROUP"),
    auto_offset_reset="earliest",
    loglevel="WARNING",
)


def read() -> None:
    app.dataframe(app.topic(os.environ["TOPIC"], value_deserializer="str")).update(
        lambda value: print(value, flush=True)
    )
    app.run()


def publish() -> None:
    with app.get_producer() as producer:
        for topic in os.environ["TOPICS"].split(","):
            for key in os.environ["KEYS"].split(",") * 3:
                producer.produce(topic=topic, key=key, value=b"value")


{"read": read, "publish": publish}[os.environ["TASK"]]()
