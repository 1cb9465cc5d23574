"""One partition's pipeline, from a raw record to its confirmed output, without Faust or a Kafka client.

A ``lane`` decodes (``decode``), scores (``scorer``), remembers (``ledger``) and publishes (``outputs``,
``publisher``). ``lanes`` holds the lanes by partition and reports the offsets to commit.
"""
