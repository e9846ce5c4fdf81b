"""The setting `network.torso`: a name, or a list of convolutions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator

from noisynet.envs.names import suggestion

TorsoName = Literal["auto", "nature", "a3c", "minatar", "flat"]


class Convolution(NamedTuple):
    """One convolution, followed by a ReLU."""

    filters: int
    kernel: int
    stride: int
    padding: int


def _checked(value: Any) -> Any:
    """A name, or a tuple of convolutions."""
    if isinstance(value, str):
        if value in get_args(TorsoName):
            return value
        hint = suggestion(value, get_args(TorsoName))
        raise ValueError(f"expected {_EXPECTED}, got {value!r}.{hint}")
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"expected {_EXPECTED}, got {value!r}")
    return tuple(_checked_convolution(layer) for layer in value)


def _checked_convolution(layer: Any) -> Convolution:
    if not isinstance(layer, list | tuple) or len(layer) != len(Convolution._fields):
        raise ValueError(f"expected a convolution as {_LAYER}, got {layer!r}")
    for name, number in zip(Convolution._fields, layer, strict=True):
        least = 0 if name == "padding" else 1
        if type(number) is not int or number < least:
            raise ValueError(
                f"expected the {name} of a convolution to be an integer of at least {least}, "
                f"got {number!r} in {list(layer)}"
            )
    return Convolution(*layer)


_LAYER = f"[{', '.join(Convolution._fields)}]"
_EXPECTED = f"{', '.join(get_args(TorsoName))} or a list of convolutions {_LAYER}"

Torso = Annotated[TorsoName | tuple[Convolution, ...], BeforeValidator(_checked)]
"""What `network.torso` accepts, for example "nature" or [[16, 8, 4, 0], [32, 4, 2, 1]]."""
