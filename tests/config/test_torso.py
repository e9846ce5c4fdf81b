"""The setting `network.torso`."""

from __future__ import annotations

import json
import re

import pytest

from noisynet.config import build_config
from noisynet.config.sections import Network
from noisynet.config.torso import Convolution

from .settings import refusal

GIVEN = "network.torso=[[16,8,4,0],[32,4,2,1]]"


@pytest.mark.parametrize("agent", ["dqn", "a3c"])
def test_a_list_of_convolutions_is_a_tuple_of_tuples(agent: str) -> None:
    torso = build_config(agent, "atari/pong", settings=[GIVEN]).network.torso
    assert torso == ((16, 8, 4, 0), (32, 4, 2, 1))
    assert isinstance(torso, tuple)
    assert torso[1] == Convolution(filters=32, kernel=4, stride=2, padding=1)
    assert hash(torso)


def test_it_comes_back_from_json() -> None:
    network = build_config("dqn", "atari/pong", settings=[GIVEN]).network
    stored = json.loads(json.dumps(network.model_dump(mode="json")))
    assert stored["torso"] == [[16, 8, 4, 0], [32, 4, 2, 1]]
    assert Network.model_validate(stored) == network
    assert hash(Network.model_validate(stored)) == hash(network)


@pytest.mark.parametrize("name", ["auto", "nature", "a3c", "minatar", "flat"])
def test_names_stay_names(name: str) -> None:
    config = build_config("dqn", "atari/pong", settings=[f"network.torso={name}"])
    assert config.network.torso == name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("natur", r"expected auto, .* or a list of .*, got 'natur'\. Did you mean 'nature'\?$"),
        ("zzz", r"expected auto, nature, a3c, minatar, flat or a list of .*, got 'zzz'\.$"),
        ("3", r"or a list of convolutions \[filters, kernel, stride, padding\], got 3$"),
        ("[]", r"or a list of convolutions .*, got \[\]$"),
        ("[16, 8, 4, 0]", r"expected a convolution as \[filters, .*\], got 16$"),
        ("[[16, 8, 4]]", r"expected a convolution as .*padding\], got \[16, 8, 4\]$"),
        ("[[0, 8, 4, 0]]", r"the filters of a convolution .* at least 1, got 0 in \[0, 8, 4, 0\]$"),
        ("[[16, 8, 0, 0]]", r"the stride of .* at least 1, got 0 in "),
        ("[[16, 8, 4, -1]]", r"the padding of .* at least 0, got -1 in "),
        ("[[16, 8.5, 4, 0]]", r"the kernel of .* an integer of at least 1, got 8.5 in "),
        ("[[16, true, 4, 0]]", r"the kernel of .* an integer of at least 1, got True in "),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(value: str, message: str) -> None:
    (error,) = refusal("dqn", "atari/pong", settings=[f"network.torso={value}"])
    assert error.startswith("network.torso: ")
    assert re.search(message, error), error
