"""Reports: the paper's tables and figures from run folders. Needs no torch.

print_paper()                                 # what `noisynet paper` prints
write_report([Path("runs")], Path("report"))  # what `noisynet report` writes

Submodules are imported on first use: `print_paper` needs neither matplotlib nor jinja2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisynet.lazy import lazy_attributes

if TYPE_CHECKING:
    from noisynet.reports.load_runs import ReportError
    from noisynet.reports.paper_tables import print_paper
    from noisynet.reports.report import ReportSummary, write_report

__all__ = ["ReportError", "ReportSummary", "print_paper", "write_report"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "load_runs": ["ReportError"],
        "paper_tables": ["print_paper"],
        "report": ["ReportSummary", "write_report"],
    },
)
