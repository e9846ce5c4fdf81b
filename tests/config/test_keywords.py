"""Settings as keyword arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisynet.config import Config, ConfigError, build_config, settings_from_keywords
from noisynet.config.errors import all_keys


def config(agent: str = "noisynet-dqn", **keywords: Any) -> Any:
    return build_config(agent, "deep_sea/4", settings=settings_from_keywords(agent, keywords))


def test_a_flat_name_is_the_key_that_ends_with_it() -> None:
    made = config(sigma0=0.1, n_step=3, hidden=(32, 16), learning_rate=np.float64(2e-3), num_envs=2)
    assert made.exploration.sigma0 == 0.1
    assert made.learning.n_step == 3
    assert made.network.hidden == (32, 16)
    assert made.optimiser.learning_rate == 2e-3
    assert made.num_envs == 2


def test_dotted_keys_and_sections_are_taken() -> None:
    dotted: dict[str, Any] = {"learning.discount": 0.97}
    made = config(**dotted, evaluation={"frames": 10}, replay={"kind": "prioritised"})
    assert made.learning.discount == 0.97
    assert made.evaluation.frames == 10
    assert made.replay.kind == "prioritised"


def test_a_whole_key_is_not_ambiguous() -> None:
    assert config(frames=123).frames == 123  # evaluation.frames is another


def test_the_family_of_the_agent_decides() -> None:
    assert config("a3c", rollout_steps=7).learning.rollout_steps == 7
    with pytest.raises(ConfigError, match=r"which belongs to A3C; did you mean 'learning.n_step'"):
        config("dqn", **{"learning.rollout_steps": 7})


def test_every_ambiguous_name_is_refused_with_its_candidates() -> None:
    ends = [key.rpartition(".")[2] for key in all_keys(Config)]
    top = {key for key in all_keys(Config) if "." not in key}
    for name in {name for name in ends if ends.count(name) > 1} - top:
        with pytest.raises(ConfigError, match=f"{name!r} is ambiguous: write .*{name}.* or "):
            config("dqn", **{name: 1})


def test_epsilon_could_mean_two_things() -> None:
    message = r"'epsilon' is ambiguous.*exploration\.final.* or .*optimiser\.epsilon"
    with pytest.raises(ConfigError, match=message):
        config("dqn", epsilon=0.1)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"sigma": 0.1}, "unknown key 'sigma'; did you mean 'exploration.sigma0'"),
        ({"gamma": 0.9}, "did you mean 'learning.discount'"),
        ({"sigma0": 0.1, "exploration.sigma0": 0.2}, "exploration.sigma0 is given twice"),
        ({"n_step": object()}, "learning.n_step: expected numbers, strings, lists or dicts, got"),
        ({"n_step": 0}, "learning.n_step: Input should be greater than 0, got 0"),
        ({"initial": 0.5}, "which belongs to exploration.kind=epsilon-greedy"),
    ],
)
def test_what_cannot_be_set_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**keywords)
