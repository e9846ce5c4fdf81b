"""How observations become frames, and images of another size."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from noisynet.envs import make_environment
from noisynet.envs.observations import frame_rule, prepare_images

from .custom_environments import SPACES, Corridor


@pytest.mark.parametrize(
    "space",
    [
        SPACES["dict"],
        SPACES["tuple"],
        SPACES["multi-binary"],
        SPACES["multi-discrete"],
        spaces.MultiBinary([2, 3]),
        spaces.Dict({"inner": SPACES["dict"], "image": spaces.Box(0, 255, (3, 3), np.uint8)}),
    ],
)
def test_composed_spaces_are_flattened_as_gymnasium_does(space: spaces.Space[Any]) -> None:
    space.seed(3)
    observation = space.sample()
    rule = frame_rule("gym/Mine-v0", space)
    expected: Any = spaces.flatten(space, observation)
    assert (rule.shape, rule.dtype, rule.pixel_scale) == (np.shape(expected), "float32", 1.0)
    frame = rule.encode(observation)
    assert frame.dtype == np.float32
    np.testing.assert_allclose(frame, np.asarray(expected, np.float32))


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "scale"),
    [
        (spaces.Box(0, 1, (84, 84, 3), np.float32), (3, 84, 84), "float32", 1.0),
        (spaces.Box(0, 1, (3, 84, 84), np.float64), (3, 84, 84), "float32", 1.0),
        (spaces.Box(0, 255, (84, 84, 3), np.float32), (3, 84, 84), "float32", 1 / 255),
        (spaces.Box(-np.inf, np.inf, (16, 16, 2), np.float32), (2, 16, 16), "float32", 1.0),
        (spaces.Box(-1, 1, (8, 9), np.float32), (8, 9), "float32", 1.0),
        (spaces.Box(0, 255, (20, 20, 3), np.int64), (3, 20, 20), "uint8", 1 / 255),
        (spaces.Box(0, 7, (10, 10), np.int32), (10, 10), "uint8", 1.0),
        (spaces.Box(-1, 7, (10, 10), np.int32), (10, 10), "float32", 1.0),
        (spaces.Box(0, 255, (5, 4), np.uint8), (5, 4), "uint8", 1 / 255),
        # Tables of numbers, and images of a few pixels, are vectors.
        (spaces.Box(-np.inf, np.inf, (30, 12), np.float32), (360,), "float32", 1.0),
        (
            spaces.Box(np.zeros((9, 9)), np.arange(81.0).reshape(9, 9) + 1, dtype=np.float64),
            (81,),
            "float32",
            1.0,
        ),
        (spaces.Box(0, 1, (7, 7, 3), np.float32), (147,), "float32", 1.0),
        (spaces.Box(0, 1, (9, 9, 9, 9), np.float32), (6561,), "float32", 1.0),
    ],
)
def test_images_of_numbers_are_images(
    space: spaces.Box, shape: tuple[int, ...], dtype: str, scale: float
) -> None:
    rule = frame_rule("gym/Mine-v0", space)
    assert (rule.shape, rule.dtype, rule.pixel_scale) == (shape, dtype, scale)
    space.seed(1)
    observation = space.sample()
    frame = rule.encode(observation)
    assert (frame.shape, frame.dtype.name) == (shape, dtype)
    last = len(shape) == 3 and space.shape != shape
    expected = observation.transpose(2, 0, 1) if last else observation.reshape(shape)
    np.testing.assert_array_equal(frame, expected.astype(dtype))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({}),
        spaces.Box(0, 255, (2, 2, 2, 2), np.uint8),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Dict({"any length": spaces.Sequence(spaces.Discrete(3))}),
    ],
)
def test_other_observations_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ValueError, match=r"expected gym/Mine-v0 to observe a Box .*got .*Wrap the"):
        frame_rule("gym/Mine-v0", space)


# --- images --------------------------------------------------------------------------------------


class Picture(gymnasium.Env[Any, Any]):
    """Shows one image."""

    def __init__(self, image: Any, high: int = 255) -> None:
        self.image = image
        self.observation_space = spaces.Box(0, high, image.shape, image.dtype)
        self.action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.image, {}


COLOURS = np.random.default_rng(0).integers(256, size=(30, 40, 3), dtype=np.uint8)


@pytest.mark.parametrize("image", [COLOURS, COLOURS.transpose(2, 0, 1)], ids=["last", "first"])
def test_colours_become_grey_wherever_the_channels_are(image: Any) -> None:
    with make_environment(Picture(image), greyscale=True) as environment:
        assert (environment.spec.frame_shape, environment.spec.frame_dtype) == ((30, 40), "uint8")
        frame = environment.start([1])[0]
    grey = (COLOURS @ np.array([0.2125, 0.7154, 0.0721])).astype(np.uint8)
    np.testing.assert_array_equal(frame, grey)


@pytest.mark.parametrize("image", [COLOURS[..., 0], COLOURS[..., :1]])
def test_grey_images_stay_as_they_are(image: Any) -> None:
    with make_environment(Picture(image), greyscale=True) as environment:
        np.testing.assert_array_equal(environment.start([1])[0].squeeze(), image.squeeze())


@pytest.mark.parametrize(
    ("resize", "greyscale", "shape"),
    [(16, False, (3, 16, 16)), ([12, 20], True, (12, 20)), ((15, 20), False, (3, 15, 20))],
)
@pytest.mark.parametrize("image", [COLOURS, COLOURS.transpose(2, 0, 1)], ids=["last", "first"])
def test_images_are_resized(
    image: Any, resize: Any, greyscale: bool, shape: tuple[int, ...]
) -> None:
    pytest.importorskip("cv2")
    with make_environment(Picture(image), resize=resize, greyscale=greyscale) as environment:
        assert environment.spec.frame_shape == shape
        frame = environment.start([1])[0]
    assert frame.dtype == np.uint8
    if shape == (3, 15, 20):  # each pixel is the mean of four
        means = COLOURS.reshape(15, 2, 20, 2, 3).mean((1, 3)).transpose(2, 0, 1)
        assert np.abs(frame - means).max() <= 1


@pytest.mark.parametrize("kind", ["flat", "dict", "float image"])
def test_other_observations_are_not_made_grey(kind: str) -> None:
    with pytest.raises(ValueError, match=r"images of bytes from 0 to 255 for .*greyscale, got"):
        make_environment(lambda: Corridor(kind), greyscale=True)


def test_resizing_without_opencv_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r'cv2.*pip install "noisynet\[gym\]"'):
        make_environment(Picture(COLOURS), resize=16)


def test_nothing_is_wrapped_where_nothing_is_asked() -> None:
    game = Picture(COLOURS)
    assert prepare_images("gym/Mine-v0", game, resize=None, greyscale=False) is game
