"""The result of an audit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One question of the audit."""

    question: str
    passed: bool | None
    """The answer; None if the question does not apply."""
    evidence: str
    """The figures behind the answer."""


@dataclass(frozen=True)
class NoiseReport:
    """The result of an audit; prints as a table."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed and at least one passed."""
        answers = [check.passed for check in self.checks]
        return False not in answers and True in answers

    @property
    def failures(self) -> list[str]:
        """The questions that failed."""
        return [check.question for check in self.checks if check.passed is False]

    def to_dict(self) -> dict[str, Any]:
        """The result and every check, JSON-able."""
        return {"passed": self.passed, "checks": [asdict(check) for check in self.checks]}

    def __getitem__(self, question: str) -> Check:
        """Return the check with that question."""
        for check in self.checks:
            if check.question == question:
                return check
        known = [check.question for check in self.checks]
        raise KeyError(f"unknown question {question!r}; the report contains {known}")

    def __str__(self) -> str:
        words = {True: "pass", False: "FAIL", None: "-"}
        width = max(len(check.question) for check in self.checks)
        lines = [
            f"{words[check.passed]:<5} {check.question:<{width}}  {check.evidence}"
            for check in self.checks
        ]
        answered = sum(check.passed is not None for check in self.checks)
        lines.append(
            f"The noise contract is kept: all {answered} applicable checks passed."
            if self.passed
            else f"The noise contract is broken: {len(self.failures)} of {answered} checks failed."
        )
        return "\n".join(lines)
