"""A partition's task and pipeline, from a raw record to its committed output; no Faust, no client of Kafka.

An ``assignment`` has a ``partition_task`` for each owned partition, which passes the records to its ``lane``;
that module explains the order of the steps. ``commit`` commits the lanes of an assignment in one transaction.
"""
