import os
from contextlib import suppress

import chdb

connection = chdb.connect(":memory:")
# chdb says "Shutdown was called", as it has no server in which streams are registered; the table is there.
with suppress(Exception):
    connection.query(
        f"""
        CREATE TABLE kafka (value String) ENGINE = Kafka SETTINGS
            kafka_broker_list = '{os.environ["KAFKA"]}', kafka_topic_list = '{os.environ["TOPIC"]}',
            kafka_group_name = '{os.environ["GROUP"]}', kafka_format = 'RawBLOB', kafka_commit_on_select = 1
        """
    )
while True:
    rows = connection.query(
        "SELECT value FROM kafka SETTINGS stream_like_engine_allow_direct_select = 1", "TSVRaw"
    )
    print(rows.bytes().decode(), end="", flush=True)
