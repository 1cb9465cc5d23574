"""Assemble agent runs from the spans that an OpenTelemetry Collector writes to Kafka.

:class:`~knowledgepulse_worker.tools.assemble.open_runs.OpenRuns` collects a partition's spans, and is pure.
:class:`~knowledgepulse_worker.tools.assemble.run_outputs.RunOutputs` converts complete runs.
:mod:`knowledgepulse_worker.tools.assemble.partition_assembler` publishes the outputs in transactions.
"""
