"""Deep Sea by hand-worked episodes, by a plain model, and by bsuite where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from noisynet.envs import DeepSeaEnvironment

# RandomState(42).binomial(1, 0.5, [3, 3]): the action that means "right" in each cell.
MAP_3 = [[0, 1, 1], [1, 0, 0], [0, 1, 1]]


def one_hot(size: int, row: int, column: int) -> list[float]:
    frame = [0.0] * (size * size)
    frame[size * row + column] = 1.0
    return frame


def test_the_action_map_is_bsuites() -> None:
    assert DeepSeaEnvironment(3).action_map.tolist() == MAP_3
    assert DeepSeaEnvironment(10).action_map[0].tolist() == [0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_going_right_all_the_way_finds_the_reward() -> None:
    with DeepSeaEnvironment(3) as env:
        assert env.start([0])[0].tolist() == one_hot(3, 0, 0)
        # Right is 0 in (0, 0), 0 in (1, 1) and 1 in (2, 2).
        step = env.step(np.array([0]))
        assert step.frame[0].tolist() == one_hot(3, 1, 1)
        assert step.reward.tolist() == [-0.01 / 3]
        step = env.step(np.array([0]))
        assert step.frame[0].tolist() == one_hot(3, 2, 2)
        assert step.reward.tolist() == [-0.01 / 3]
        assert not step.terminated[0]
        step = env.step(np.array([1]))
        assert step.frame[0].tolist() == [0.0] * 9
        assert step.reward.tolist() == [1 - 0.01 / 3]
        assert step.terminated.tolist() == [True]
        assert step.truncated.tolist() == [False]


def test_one_step_to_the_left_loses_the_reward() -> None:
    with DeepSeaEnvironment(3) as env:
        env.start([0])
        # Left in (0, 0) stays in column 0; then right in (1, 0) and left in (2, 1).
        moves = [(1, one_hot(3, 1, 0), 0.0), (1, one_hot(3, 2, 1), -0.01 / 3), (0, [0.0] * 9, 0.0)]
        for action, frame, reward in moves:
            step = env.step(np.array([action]))
            assert step.frame[0].tolist() == frame
            assert step.reward.tolist() == [reward]
        assert step.terminated.tolist() == [True]


def test_the_left_action_in_the_last_cell_gives_nothing() -> None:
    with DeepSeaEnvironment(3) as env:
        env.start([0])
        env.step(np.array([0]))
        env.step(np.array([0]))
        assert env.step(np.array([0])).reward.tolist() == [0.0]


@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_best_return_is_0_99(size: int) -> None:
    with DeepSeaEnvironment(size) as env:
        env.start([0])
        total = sum(float(env.step(env.action_map[[i], [i]]).reward[0]) for i in range(size))
    assert total == pytest.approx(0.99)


@pytest.mark.parametrize("size", [2, 4, 9])
def test_many_environments_out_of_phase_follow_a_plain_model(size: int) -> None:
    generator = np.random.default_rng(size)
    env = DeepSeaEnvironment(size, 6, mapping_seed=7)
    right_action = env.action_map
    cells = [[0, 0] for _ in range(6)]
    env.start([0] * 6)
    for _ in range(10 * size):
        if generator.random() < 0.3:
            index = int(generator.integers(6))
            env.start([1 if i == index else None for i in range(6)])
            cells[index] = [0, 0]
        actions = generator.integers(2, size=6)
        step = env.step(actions)
        for i, (row, column) in enumerate(cells):
            right = bool(actions[i] == right_action[row, column])
            reward = float(right and column == size - 1) - (0.01 / size if right else 0.0)
            cells[i] = [row + 1, min(max(column + (1 if right else -1), 0), size - 1)]
            assert step.reward[i] == pytest.approx(reward, abs=1e-15)
            assert step.terminated[i] == (row + 1 == size)
            expected = [0.0] * size**2 if row + 1 == size else one_hot(size, *cells[i])
            assert step.frame[i].tolist() == expected
        env.start([1 if over else None for over in step.terminated])
        cells = [
            [0, 0] if over else cell for cell, over in zip(cells, step.terminated, strict=True)
        ]


@pytest.mark.parametrize("size", [2, 10, 13])
@pytest.mark.parametrize("randomise", [True, False])
def test_episodes_equal_bsuites(size: int, randomise: bool) -> None:
    deep_sea = pytest.importorskip("bsuite.environments.deep_sea")
    theirs = deep_sea.DeepSea(size, mapping_seed=42, randomize_actions=randomise)
    ours = DeepSeaEnvironment(size, randomise_actions=randomise)
    generator = np.random.default_rng(0)
    for _ in range(20):
        frame, time_step = ours.start([0]), theirs.reset()
        while not time_step.last():
            np.testing.assert_array_equal(frame[0], time_step.observation.ravel())
            action = int(generator.integers(2))
            step, time_step = ours.step(np.array([action])), theirs.step(action)
            frame = step.frame
            assert step.reward[0] == pytest.approx(time_step.reward, abs=1e-15)
            assert step.terminated[0] == time_step.last()


def test_the_map_belongs_to_the_mapping_seed_and_not_to_the_episode() -> None:
    env = DeepSeaEnvironment(12)
    before = env.action_map
    env.start([1])
    env.start([2])
    assert np.array_equal(env.action_map, before)
    assert not np.array_equal(DeepSeaEnvironment(12, mapping_seed=43).action_map, before)


def test_without_a_random_map_action_1_is_always_right() -> None:
    with DeepSeaEnvironment(5, randomise_actions=False) as env:
        assert env.action_map.tolist() == [[1] * 5] * 5
        env.start([0])
        assert sum(float(env.step(np.array([1])).reward[0]) for _ in range(5)) == pytest.approx(
            0.99
        )


def test_the_screen_shows_diver_and_treasure_to_the_end() -> None:
    with DeepSeaEnvironment(3) as env:
        env.start([0])
        screen = env.screen(0)
        assert screen.shape == (48, 48, 3)
        assert screen[8, 8].tolist() == [255, 214, 64]
        assert screen[40, 40].tolist() == [88, 196, 104]
        for action in (0, 0, 1):
            env.step(np.array([action]))
        assert env.screen(0)[40, 40].tolist() == [255, 214, 64]


@pytest.mark.parametrize("size", [1, 0, -3])
def test_a_size_below_2_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="deep_sea to be at least 2"):
        DeepSeaEnvironment(size)
