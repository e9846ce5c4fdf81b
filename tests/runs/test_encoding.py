from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from noisynet.runs.encoding import decode, decode_state, encode, encode_state


def test_insertion_order_and_no_spaces() -> None:
    assert encode({"b": 1, "a": [1.5, None, True]}) == b'{"b":1,"a":[1.5,null,true]}'


def test_non_finite_numbers_are_texts_in_standard_json() -> None:
    data = encode({"x": [math.nan, math.inf, -math.inf]})
    assert data == b'{"x":["nan","inf","-inf"]}'
    nan, plus, minus = decode(data)["x"]
    assert math.isnan(nan)
    assert (plus, minus) == (math.inf, -math.inf)


def test_reserved_strings_are_rejected_with_their_path() -> None:
    with pytest.raises(ValueError, match=r"outer\.inner\[1\]: the string 'nan'"):
        encode({"outer": {"inner": ["fine", "nan"]}})


@pytest.mark.parametrize("codec", [(encode, decode), (encode_state, decode_state)])
def test_round_trip(codec: tuple[Any, Any]) -> None:
    to_bytes, from_bytes = codec
    state = np.random.Generator(np.random.PCG64(3)).bit_generator.state
    value = {
        "pcg": state,
        "big": -(2**521) + 1,
        "nested": [[1, [2, []]], {}],
        "text": "σ\u2028 \udcff",
        "tiny": 5e-324,
        "third": 1 / 3,
    }
    data = to_bytes(value)
    assert from_bytes(data) == value
    assert b"\n" not in data


def test_state_keeps_any_text_and_any_float() -> None:
    value = {"text": "nan", "best": -math.inf}
    assert decode_state(encode_state(value)) == value
    assert math.isnan(decode_state(encode_state([math.nan]))[0])


def test_numpy_scalars_become_python_numbers() -> None:
    row = {"i": np.int64(3), "f": np.float32(0.1), "b": np.bool_(True), "nan": np.float32("nan")}
    assert encode(row) == b'{"i":3,"f":0.10000000149011612,"b":true,"nan":"nan"}'


def test_values_that_json_would_change_are_rejected_with_their_path() -> None:
    with pytest.raises(TypeError, match=r"a: keys must be strings, got 1"):
        encode({"a": {1: 2}})
    with pytest.raises(TypeError, match=r"a\.b\[0\]: expected .* got ndarray"):
        encode_state({"a": {"b": [np.zeros(2)]}})
