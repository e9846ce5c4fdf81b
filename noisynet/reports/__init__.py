"""From run folders to the paper's tables and figures. Needs no torch.

print_paper()                                # what `noisynet paper` prints
write_report([Path("runs")], Path("report"))  # what `noisynet report` writes
"""

from __future__ import annotations

from noisynet.extras import extra

with extra("report"):
    from noisynet.reports.paper_tables import print_paper
    from noisynet.reports.reading import ReportError
    from noisynet.reports.writing import ReportSummary, write_report

__all__ = ["ReportError", "ReportSummary", "print_paper", "write_report"]
