"""Error messages: every error at once, with the nearest valid name."""

from __future__ import annotations

import re

import pytest

from .settings import refusal


def test_all_errors_are_listed_with_the_nearest_names() -> None:
    errors = refusal(
        "noisnet-dqn",
        "atari/pongg",
        seed=-1,
        preset="papper",
        settings=[
            "learning.discunt=0.9",
            "learning.batch_size=many",
            "exploration.sigma=0.4",
            "replay.capacity_steps=0",
            "justtext",
        ],
    )
    text = "\n".join(errors)
    assert len(errors) == 9, text
    for expected in (
        r"unknown agent 'noisnet-dqn'.*did you mean 'noisynet-dqn'",
        r"unknown preset 'papper'.*did you mean 'paper'",
        r"no game 'pongg'.*'atari/pong'",
        r"seed: .*greater than or equal to 0.*-1",
        r"unknown key 'learning.discunt'; did you mean 'learning.discount'",
        r"learning.batch_size: .*integer.*'many'",
        r"unknown key 'exploration.sigma'; did you mean 'exploration.sigma0'",
        r"replay.capacity_steps: .*greater than 0",
        r"expected key=value, got 'justtext'",
    ):
        assert re.search(expected, text), expected


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        (
            "exploration.noise=factorized",
            "exploration.noise: expected 'factorised' or 'independent', got 'factorized'; "
            "did you mean 'factorised'?",
        ),
        (
            "learning.loss=hubert",
            "learning.loss: expected 'huber' or 'squared', got 'hubert'; did you mean 'huber'?",
        ),
        (
            "exploration.warm_up=uniformly",
            "exploration.warm_up: expected 'noisy' or 'uniform', got 'uniformly'; "
            "did you mean 'uniform'?",
        ),
        (
            "replay.kind=prioritized",
            "replay.kind: expected 'uniform' or 'prioritised', got 'prioritized'; "
            "did you mean 'prioritised'?",
        ),
        ("learning.loss=xyz", "learning.loss: expected 'huber' or 'squared', got 'xyz'"),
        ("learning.loss=3", "learning.loss: expected 'huber' or 'squared', got 3"),
        ("replay.kind=[1]", "replay.kind: expected 'uniform' or 'prioritised', got [1]"),
        ("replay.kind=3", "replay.kind: expected 'uniform' or 'prioritised', got 3"),
        (
            "compute=compiled",
            "compute: expected 'auto' or 'torch' or 'compile', got 'compiled'; "
            "did you mean 'compile'?",
        ),
    ],
)
def test_a_wrong_choice_is_answered_with_the_nearest_one(setting: str, error: str) -> None:
    assert refusal("noisynet-dqn", "atari/pong", settings=[setting]) == [error]
    settings = [setting, "replay.kin=uniform"]
    assert error in refusal("noisynet-dqn", "atari/pong", settings=settings)  # among others, too


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (["learning.starts_steps=31"], r"starts_steps \(31\) is below learning.batch_size \(32\)"),
        (["num_envs=201"], r"starts_steps \(200\) is below num_envs × learning.n_step \(201\)"),
        (["num_envs=50", "learning.n_step=5"], r"below num_envs × learning.n_step \(250\)"),
        (["learning.starts_steps=50001"], r"above replay.capacity_steps \(50000\)"),
        (["replay.kind=prioritised", "replay.alpha=1.1"], r"replay.alpha: .*1"),
        (["replay.alpha=0.5"], r"unknown key 'replay.alpha'"),
        (["learning.loss=hubr"], r"learning.loss: .*'huber' or 'squared', got 'hubr'"),
        (["exploration.kind=noisy"], r"exploration.kind: .*did you mean 'noisy-weights'"),
        (["learning.discount=1"], r"learning.discount: .*less than 1"),
        (["optimiser.learning_rate=Infinity"], r"optimiser.learning_rate: .*finite"),
        (["learning.max_gradient_norm=NaN"], r"learning.max_gradient_norm: "),
        (["network.hidden=[]"], r"network.hidden: .*at least 1"),
        (["learning=3"], r"learning: .*got 3"),
        (["learning=3", "learning.loss=huber"], r"learning is a value and has no fields"),
        (["adam=1"], r"unknown key 'adam'"),
        (["learning.uniform=1"], r"unknown key 'learning.uniform'"),
        (["=3"], r"expected key=value, got '=3'"),
        (["seed=2147483648"], r"seed: .*less than 2147483648"),
        (["threads=0"], r"threads: .*greater than 0, got 0"),
        (["threads=all"], r"threads: .*'all'"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_with_its_reason(settings: list[str], error: str) -> None:
    assert re.search(error, "\n".join(refusal("dqn", "deep_sea/10", settings=settings)))


OF_VALUE_AGENTS = {
    "num_envs": "; did you mean 'envs_per_worker'?",
    "learning.n_step": "; did you mean 'learning.rollout_steps'?",
    "learning.batch_size": "",
    "learning.double_q": "",
    "network.dueling": "",
    "exploration.redraw": "",
    "exploration.warm_up": "",
}

OF_A3C = {
    "envs_per_worker": "; did you mean 'num_envs'?",
    "learning.rollout_steps": "; did you mean 'learning.n_step'?",
    "workers": "",
    "recurrent": "",
    "noisy_lstm": "",
    "exploration.layers": "",
    "optimiser.anneal": "",
    "learning.value_weight": "",
}


def test_the_keys_of_value_agents_are_refused_together() -> None:
    errors = refusal(
        "noisynet-a3c",
        "atari/pong",
        settings=[*(f"{key}=1" for key in OF_VALUE_AGENTS), "replay.kind=uniform"],
    )
    expected = [
        f"unknown key {key!r}, which belongs to value agents{hint}"
        for key, hint in (OF_VALUE_AGENTS | {"replay": ""}).items()
    ]
    assert sorted(errors) == sorted(expected)


def test_value_agents_refuse_the_keys_of_a3c_together() -> None:
    errors = refusal("noisynet-dqn", "atari/pong", settings=[f"{key}=1" for key in OF_A3C])
    expected = [f"unknown key {k!r}, which belongs to A3C{hint}" for k, hint in OF_A3C.items()]
    assert sorted(errors) == sorted(expected)


def test_an_agent_of_the_other_family_is_refused() -> None:
    (error,) = refusal("dqn", "atari/pong", settings=["agent=a3c"])
    assert error == ("agent: these settings are of the family value, got 'a3c' of actor-critic")


def test_errors_and_contradictions_are_listed_together() -> None:
    assert refusal(
        "noisynet-a3c",
        "atari/pongg",
        settings=[
            "exploration.layer=heads",
            "exploration.noise=factorised",
            "optimiser.kind=adam",
            "learning.rollout_steps=0",
            "noisy_lstm=true",
        ],
    ) == [
        "atari has no game 'pongg'. Did you mean 'atari/pong'?",
        "unknown key 'exploration.layer'; did you mean 'exploration.layers'?",
        "learning.rollout_steps: Input should be greater than 0, got 0",
        "optimiser.kind: expected 'shared-rmsprop', got 'adam'",
        "noisynet-a3c expects exploration.noise=independent, got factorised; choose the agent "
        "noisynet-a3c-factorised instead",
        "noisy_lstm=true expects recurrent=true, got noisynet-a3c without",
    ]


def test_more_workers_than_a_machine_can_have_are_refused() -> None:
    assert refusal("a3c", "gym/CartPole-v1", settings=["workers=513"]) == [
        "workers: Input should be less than or equal to 512, got 513"
    ]
