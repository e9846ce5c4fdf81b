"""`noisynet agents`, `envs` and `settings`."""

from __future__ import annotations

import sys

import pytest

from noisynet.config import AGENTS

from .calling import invoke


def test_agents_lists_every_agent_with_its_exploration() -> None:
    ended = invoke("agents")
    assert ended.exit_code == 0
    rows = {line.split()[0]: line for line in ended.output.splitlines()[1:]}
    assert tuple(rows) == AGENTS
    assert rows["noisynet-dqn"].endswith("factorised noise on its weights")
    assert rows["noisynet-a3c"].endswith("independent noise on its weights")
    assert rows["a3c"].endswith("entropy bonus")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("ONG", ["atari/pong"]),
        ("*/breakout", ["atari/breakout", "minatar/breakout"]),
        ("deep", ["deep_sea/<n>"]),
        ("gym/cart*", ["gym/CartPole-v1"]),
    ],
)
def test_envs_are_found_by_a_part_or_a_pattern(pattern: str, expected: list[str]) -> None:
    if pattern.startswith("gym"):
        pytest.importorskip("gymnasium")
    ended = invoke("envs", pattern)
    assert (ended.exit_code, ended.output.splitlines()) == (0, expected)


def test_envs_without_gymnasium_show_the_form_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium.envs.registration", None)
    names = invoke("envs").output.splitlines()
    assert len(names) == 57 + 5 + 2
    assert names[-2:] == ["deep_sea/<n>", "gym/<id>"]


def test_an_unknown_environment_is_refused_with_the_nearest() -> None:
    ended = invoke("envs", "minatar/breakuot")
    assert ended.exit_code == 1
    assert "Did you mean 'minatar/breakout'?" in ended.output


def test_settings_have_a_value_a_source_and_a_meaning() -> None:
    ended = invoke("settings", "noisynet-dqn", "minatar/breakout")
    assert ended.exit_code == 0, ended.output
    rows = {line.split()[0]: line.split()[1:] for line in ended.output.splitlines()}
    assert rows["exploration.sigma0"][:2] == ["0.5", "paper"]
    assert rows["network.hidden"][:3] == ["[128]", "preset", "minatar"]
    assert rows["log_period_steps"][:2] == ["1000", "default"]


def test_settings_of_an_unknown_agent_list_every_error() -> None:
    ended = invoke("settings", "noisynet-dqnn", "atari/pongg")
    assert ended.exit_code == 2
    assert "did you mean 'noisynet-dqn'" in ended.output
    assert "'atari/pong'" in ended.output
