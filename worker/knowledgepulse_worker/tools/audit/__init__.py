"""Audit a stream's outputs against its raw topic: nothing lost, nothing different.

Data flows one way: ``run`` reads the topics; ``index`` collects outputs and ledger entries by source offset;
``partition`` checks each raw record of a partition against the index, with ``novelty`` for the part that
depends on earlier records; ``report`` is the result.
"""

from knowledgepulse_worker.tools.audit.report import Difference, PartitionReport, Report
from knowledgepulse_worker.tools.audit.run import audit

__all__ = ["Difference", "PartitionReport", "Report", "audit"]
