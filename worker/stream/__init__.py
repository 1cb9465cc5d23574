"""From the raw topic to the outputs: the only place that knows Faust and Kafka.

Data flows one way: ``consumer`` hands a partition's records to its ``lane``, which decodes (``decode``),
scores (``judge``), remembers (``ledger``) and publishes (``outputs``, ``publisher``); ``lanes`` keeps them by
partition and tells the consumer what may be committed; ``app`` puts it together.
"""
