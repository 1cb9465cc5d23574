"""Assemble agent runs from the spans that an OpenTelemetry Collector writes to Kafka.

:class:`~worker.assemble.runs.OpenRuns` collects a partition's spans, and is pure.
:class:`~worker.assemble.outputs.RunOutputs` converts complete runs.
:mod:`worker.assemble.partition` publishes the outputs in transactions.
"""
