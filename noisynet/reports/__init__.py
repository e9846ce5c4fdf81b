"""From run folders to the paper's tables and figures. Needs no torch.

print_paper()                                # what `noisynet paper` prints
write_report([Path("runs")], Path("report"))  # what `noisynet report` writes
"""

from __future__ import annotations

from noisynet.reports.load_runs import ReportError
from noisynet.reports.paper_tables import print_paper
from noisynet.reports.report import ReportSummary, write_report

__all__ = ["ReportError", "ReportSummary", "print_paper", "write_report"]
