"""One partition's pipeline, from a raw record to its confirmed output, without Faust or a Kafka client.

A ``lane`` decodes (``decode``), scores (``judge``), remembers (``ledger``) and publishes (``outputs``,
``publisher``). ``lanes`` keeps the lanes by partition and names the offsets to commit.
"""
