"""Audit a stream's outputs against its raw topic: every record has its output, and every output is right.

Data flows one way. :mod:`~knowledgepulse_worker.tools.audit.stream_audit` reads the topics, and
:mod:`~knowledgepulse_worker.tools.audit.source_index` collects outputs and ledger entries by source offset.
:mod:`~knowledgepulse_worker.tools.audit.partition_audit` checks each raw record of a partition against the
index; :mod:`~knowledgepulse_worker.tools.audit.novelty_audit` recomputes the novelty, which depends on
earlier records. :mod:`~knowledgepulse_worker.tools.audit.audit_report` holds the result.
"""

from knowledgepulse_worker.tools.audit.audit_report import AuditReport, Difference, PartitionReport
from knowledgepulse_worker.tools.audit.stream_audit import audit

__all__ = ["AuditReport", "Difference", "PartitionReport", "audit"]
