"""From run folders to the paper's tables and figures. Needs no torch."""

from __future__ import annotations

from noisynet.reports.paper_tables import print_paper

__all__ = ["print_paper"]
