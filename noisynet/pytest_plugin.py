"""The pytest fixture `noise_audit`; pytest finds it wherever noisynet is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from noisynet.audit import NoiseReport


@pytest.fixture
def noise_audit() -> Callable[..., NoiseReport]:
    """Audits an agent, as `noisynet.check_noise`; a failed question fails the test."""

    def audit(agent: Any, **options: Any) -> NoiseReport:
        from noisynet.integrations import check_noise  # torch, only where the fixture is used

        report = check_noise(agent, **options)
        if not report.passed:
            failures = ", ".join(report.failures) or "nothing was checked"
            pytest.fail(f"{failures}\n{report}", pytrace=False)  # the summary has the first line
        return report

    return audit
