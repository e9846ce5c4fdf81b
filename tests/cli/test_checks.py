"""`noisynet audit` and `noisynet doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noisynet import agents, doctor

from .calling import invoke


def test_audit_of_a_noisy_agent_passes() -> None:
    ended = invoke("audit", "noisynet-dqn", "deep_sea/4")
    assert ended.exit_code == 0, ended.output
    assert "FAIL" not in ended.output


def test_audit_of_a_plain_agent_is_refused() -> None:
    ended = invoke("audit", "dqn", "deep_sea/4")
    assert ended.exit_code == 2
    assert "expected a noisy agent, got dqn, which explores by epsilon-greedy" in ended.output


@pytest.mark.parametrize("compute", ["auto", "torch"])
def test_audit_examines_the_configured_compute(
    compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def make(config: Any, *arguments: Any) -> Any:
        made.append(config)
        return real(config, *arguments)

    real = agents.make_agent
    monkeypatch.setattr(agents, "make_agent", make)
    ended = invoke("audit", "noisynet-dqn", "deep_sea/4", "--set", f"compute={compute}")
    assert ended.exit_code == 0, ended.output
    assert [config.compute for config in made] == [compute]


@pytest.mark.parametrize(("trust", "told"), [(False, "add --trust"), (True, "not a zip file")])
def test_a_file_of_another_library_is_loaded_only_if_trusted(
    trust: bool, told: str, tmp_path: Path
) -> None:
    (tmp_path / "model.zip").write_bytes(b"nothing")
    ended = invoke("audit", f"sb3:{tmp_path / 'model.zip'}", *(["--trust"] if trust else []))
    assert ended.exit_code == 2
    assert told in ended.output
    missing = invoke("audit", f"sb3:{tmp_path / 'other.zip'}")
    assert missing.exit_code == 2
    assert "other.zip, which does not exist" in missing.output


def test_doctor_exits_1_if_anything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [doctor.Finding("python", True, "3.14"), doctor.Finding("games", False, "broken")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    ended = invoke("doctor")
    assert ended.exit_code == 1
    assert ended.output.splitlines() == [
        "ok    python           3.14",
        "FAIL  games            broken",
    ]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings[:1]))
    assert invoke("doctor").exit_code == 0
