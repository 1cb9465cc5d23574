"""Hold what a stream published against what it should have: nothing lost, nothing differing.

Data flows one way: ``run`` reads the topics; ``index`` keeps what outputs and changelog tell of each source
offset; ``partition`` goes through a partition of raw and holds each record against that, with ``novelty``
for the part that depends on the records before it; ``report`` is what comes out.
"""

from worker.audit.report import Difference, PartitionReport, Report
from worker.audit.run import audit

__all__ = ["Difference", "PartitionReport", "Report", "audit"]
