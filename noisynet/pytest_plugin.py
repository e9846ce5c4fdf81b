"""The pytest fixture `noise_audit`; pytest finds it wherever noisynet is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from noisynet.audit import NoiseReport


class NoiseAudit(Protocol):
    """Audits an agent; see `noise_audit`."""

    def __call__(self, agent: Any, **options: Any) -> NoiseReport:
        """Return the report of an agent that keeps the noise contract, else fail the test."""


@pytest.fixture
def noise_audit() -> NoiseAudit:
    """A function with the arguments of `noisynet.check_noise` that fails the test with the report.

    ```python
    def test_agent(noise_audit):
        noise_audit(module, act=act, learn=learn)
    ```
    """

    def audit(agent: Any, **options: Any) -> NoiseReport:
        from noisynet.integrations import check_noise  # torch, only where the fixture is used

        report = check_noise(agent, **options)
        if not report.passed:
            failures = ", ".join(report.failures) or "nothing was checked"
            pytest.fail(f"{failures}\n{report}", pytrace=False)  # the summary has the first line
        return report

    return audit
