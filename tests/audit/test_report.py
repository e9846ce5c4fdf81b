from __future__ import annotations

import pytest

from noisynet.audit import Check, NoiseReport

PASSED = Check("is it noisy", True, "8 of 8")
FAILED = Check("is it fresh", False, "0 of 8")
UNASKED = Check("is it independent", None, "not run")


@pytest.mark.parametrize(
    ("checks", "passed", "failures"),
    [
        ((PASSED,), True, []),
        ((PASSED, UNASKED), True, []),
        ((UNASKED,), False, []),  # nothing was checked
        ((PASSED, FAILED, UNASKED), False, ["is it fresh"]),
    ],
)
def test_a_report_passes_if_something_passed_and_nothing_failed(
    checks: tuple[Check, ...], passed: bool, failures: list[str]
) -> None:
    report = NoiseReport(checks)
    assert report.passed == passed
    assert report.failures == failures


def test_a_report_prints_as_a_table() -> None:
    assert str(NoiseReport((PASSED, UNASKED))).splitlines() == [
        "pass  is it noisy        8 of 8",
        "-     is it independent  not run",
        "The noise contract is kept: all 1 applicable checks passed.",
    ]
    broken = str(NoiseReport((PASSED, FAILED, UNASKED))).splitlines()
    assert broken[1] == "FAIL  is it fresh        0 of 8"
    assert broken[-1] == "The noise contract is broken: 1 of 2 checks failed."


def test_a_check_is_found_by_its_question() -> None:
    assert NoiseReport((PASSED, FAILED))["is it fresh"] is FAILED
    with pytest.raises(KeyError, match=r"unknown question 'is it loud'; .*is it noisy"):
        NoiseReport((PASSED,))["is it loud"]


def test_a_report_is_plain_data_for_programs() -> None:
    assert NoiseReport((PASSED, UNASKED)).to_dict() == {
        "passed": True,
        "checks": [
            {"question": "is it noisy", "passed": True, "evidence": "8 of 8"},
            {"question": "is it independent", "passed": None, "evidence": "not run"},
        ],
    }
