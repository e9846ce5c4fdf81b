"""The training loop: what it stores, when it learns, and that it continues bit for bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisynet.agents import Learner, Learnt, ValueAgent
from noisynet.config import Config, build_config
from noisynet.envs import Environment, EnvironmentSpec, Step, episode_seed
from noisynet.evaluation import make_configured_environment
from noisynet.loops import OffPolicyLoop
from noisynet.replay import FrameStore, PrioritisedReplay, TransitionBatch
from noisynet.replay.transitions import BatchBuilder
from noisynet.runs import RunDamaged

STACK = 3
GAMMA = 0.75  # a float32 too


class Known(Environment):
    """Games whose every frame, reward and end follow from their seed, time and last action.

    An episode lasts 3 to 6 steps. It is terminated if its seed is even and truncated otherwise; a
    life is lost in its second step; in the last one too, if the seed is a multiple of three.
    """

    def __init__(self, num_envs: int = 1, frames_per_step: int = 4) -> None:
        spec = EnvironmentSpec("deep_sea/4", 4, (3,), "float32", STACK, frames_per_step, 1.0)
        super().__init__(spec, num_envs)
        self.seeds, self.times = [0] * num_envs, [0] * num_envs
        self.last = [0] * num_envs

    @staticmethod
    def length(seed: int) -> int:
        return 3 + seed % 4

    @staticmethod
    def frame(seed: int, time: int, action: int) -> NDArray[np.float32]:
        return np.array([1 + seed % 1_000, time, action], np.float32)

    @staticmethod
    def reward(time: int, action: int) -> float:
        return time - 2.0 * action

    @classmethod
    def end(cls, seed: int, time: int) -> tuple[bool, bool, bool]:
        """Whether that step terminates, truncates, and costs a life."""
        over = time == cls.length(seed)
        ended = over and seed % 2 == 0
        return ended, over and not ended, time == 2 or (over and seed % 3 == 0)

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        for env, seed in enumerate(seeds):
            if seed is not None:
                self.seeds[env], self.times[env], self.last[env] = seed, 0, 0
        return self._frames()

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        self.last = actions.tolist()
        self.times = [time + 1 for time in self.times]
        ends = [self.end(*game) for game in zip(self.seeds, self.times, strict=True)]
        rewards = [self.reward(*game) for game in zip(self.times, self.last, strict=True)]
        terminated, truncated, lives = (np.array(column) for column in zip(*ends, strict=True))
        return Step(self._frames(), np.array(rewards), terminated, truncated, lives)

    def _screen(self, index: int) -> NDArray[np.uint8]:
        raise NotImplementedError

    def _frames(self) -> NDArray[np.float32]:
        games = zip(self.seeds, self.times, self.last, strict=True)
        return np.stack([self.frame(*game) for game in games])


@dataclass
class Stub:
    """An agent that acts at random and only takes notes."""

    store: FrameStore
    notes: list[str] = field(default_factory=list)
    seen: list[NDArray[Any]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    chosen: list[list[int]] = field(default_factory=list)
    stored_when_learning: list[int] = field(default_factory=list)
    batches: list[TransitionBatch] = field(default_factory=list)
    begun: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def act(self, observation: NDArray[Any], step: int) -> NDArray[np.int64]:
        self.seen.append(observation.copy())
        self.steps.append(step)
        actions = self.rng.integers(4, size=len(observation))
        self.chosen.append(actions.tolist())
        return actions

    def begin(self, batch: TransitionBatch) -> None:
        self.notes.append("draw")
        self.stored_when_learning.append(self.store.count())
        self.batches.append(batch.copy())

    def finish(self) -> Learnt:
        self.notes.append("learn")
        return Learnt(0.0, np.arange(len(self.batches[-1].action), dtype=np.float32))

    def sync_target(self) -> None:
        self.notes.append("sync")

    def prepare(self, count: int) -> None:
        """There is no noise to draw."""

    def begin_episode(self) -> None:
        self.begun += 1


def configure(*settings: str, agent: str = "noisynet-dqn", name: str = "deep_sea/4") -> Config:
    fixed = ["network.hidden=[8]", "learning.batch_size=4", "learning.starts_steps=20"]
    config = build_config(agent, name, settings=[*fixed, *settings])
    assert isinstance(config, Config)
    return config


def make_store(
    config: Config, environment: Environment, folder: Path | None = None, capacity: int = 4_000
) -> FrameStore:
    spec = environment.spec
    return FrameStore(
        capacity,
        spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        num_actions=spec.num_actions,
        num_envs=environment.num_envs,
        stack=spec.stack,
        n_step=config.learning.n_step,
        slack_rows=45,
        folder=folder,
    )


def stubbed(config: Config, environment: Environment) -> tuple[OffPolicyLoop, Stub]:
    store = make_store(config, environment)
    stub = Stub(store)
    return OffPolicyLoop(config, cast("ValueAgent", stub), environment, store), stub


# --- what is stored ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transition:
    x: list[list[float]]
    action: int
    reward: float
    discount: float
    y: list[list[float]]


def expected_transitions(env: int, actions: list[int], clip: bool) -> list[Transition]:
    """What environment `env` must have stored, from the definition of its games alone."""
    found, number, time = [], 0, 0
    seed = episode_seed(0, "train", env, number)
    frames = [np.zeros(3, np.float32)] * (STACK - 1) + [Known.frame(seed, 0, 0)]
    for action in actions:
        time += 1
        after = [*frames[1:], Known.frame(seed, time, action)]
        reward = Known.reward(time, action)
        terminated, truncated, life = Known.end(seed, time)
        found.append(
            Transition(
                np.stack(frames).tolist(),
                action,
                float(np.clip(reward, -1, 1)) if clip else reward,
                0.0 if terminated or life else GAMMA,
                np.stack(after).tolist(),
            )
        )
        frames = after
        if terminated or truncated:
            number, time = number + 1, 0
            seed = episode_seed(0, "train", env, number)
            frames = [np.zeros(3, np.float32)] * (STACK - 1) + [Known.frame(seed, 0, 0)]
    return found


def stored_transitions(store: FrameStore, env: int) -> list[Transition]:
    low, high = store.bounds()
    rows = np.arange(low[env], high[env])
    rows = rows[store.can_start(np.full_like(rows, env), rows, low)]
    batch = BatchBuilder(store).build(np.full_like(rows, env), rows, np.ones(len(rows), np.float32))
    return [
        Transition(x.tolist(), int(a), float(r), float(d), y.tolist())
        for x, a, r, d, y in zip(
            batch.x, batch.action, batch.reward, batch.discount, batch.y, strict=True
        )
    ]


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_every_transition_is_stored_as_it_happened(num_envs: int, clip: bool) -> None:
    config = configure(
        f"num_envs={num_envs}",
        "frames=1200",
        f"learning.discount={GAMMA}",
        f"learning.clip_rewards={str(clip).lower()}",
    )
    loop, stub = stubbed(config, Known(num_envs))
    assert len(list(loop.run())) == 300 // num_envs
    for env in range(num_envs):
        actions = [chosen[env] for chosen in stub.chosen]
        expected = expected_transitions(env, actions, clip)
        assert stored_transitions(loop.store, env) == expected
        # What the agent saw is what was stored.
        assert [seen[env].tolist() for seen in stub.seen] == [found.x for found in expected]


def test_the_known_games_end_in_every_way() -> None:
    """Or the test above would show less than it says."""
    seeds = [episode_seed(0, "train", 0, number) for number in range(40)]
    assert {Known.end(seed, Known.length(seed)) for seed in seeds} == {
        (True, False, False),
        (False, True, False),
        (True, False, True),
        (False, True, True),
    }


def test_truncation_keeps_the_discount_and_termination_and_lost_lives_do_not() -> None:
    loop, _ = stubbed(configure("frames=1200", f"learning.discount={GAMMA}"), Known())
    list(loop.run())
    stored = stored_transitions(loop.store, 0)
    by_end: dict[tuple[bool, bool, bool], set[float]] = {}
    seeds = iter(episode_seed(0, "train", 0, number) for number in range(1_000))
    seed, time = next(seeds), 0
    for transition in stored:
        time += 1
        terminated, truncated, life = Known.end(seed, time)
        by_end.setdefault((terminated, truncated, life), set()).add(transition.discount)
        if terminated or truncated:
            seed, time = next(seeds), 0
    assert by_end[False, True, False] == {GAMMA}
    assert by_end[False, False, False] == {GAMMA}
    assert {end for end, found in by_end.items() if found == {0.0}} == {
        (True, False, False),
        (True, False, True),
        (False, True, True),
        (False, False, True),
    }


def test_a_finished_episode_is_reported_with_its_raw_score() -> None:
    config = configure("frames=400", "num_envs=2", "learning.clip_rewards=true")
    loop, stub = stubbed(config, Known(2))
    finished = [episode for tick in loop.run() for episode in tick.finished]
    for env in range(2):
        numbers = [episode.number for episode in finished if episode.env == env]
        assert numbers == list(range(len(numbers)))
        actions = iter(chosen[env] for chosen in stub.chosen)
        for episode in (episode for episode in finished if episode.env == env):
            length = Known.length(episode_seed(0, "train", env, episode.number))
            assert episode.steps == length
            score = sum(Known.reward(time + 1, next(actions)) for time in range(length))
            assert episode.score == score
    assert stub.begun == len(finished) + 2  # those that are under way


# --- when it learns ------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [1, 4])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_updates_and_copies_fall_due_by_steps_whatever_the_number_of_environments(
    num_envs: int, period: int
) -> None:
    config = configure(
        "frames=400",
        f"num_envs={num_envs}",
        f"learning.update_period_steps={period}",
        "learning.sync_target_steps=6",
    )
    loop, stub = stubbed(config, Known(num_envs))
    expected: list[str] = []
    for tick in loop.run():
        for step in range(tick.steps - num_envs + 1, tick.steps + 1):
            if step > 20:
                expected += ["draw", "learn"] if step % period == 0 else []
                expected += ["sync"] if step % 6 == 0 else []
        assert stub.notes == expected
        assert tick.steps == num_envs * len(stub.chosen)
    assert expected.count("learn") == 80 // period
    assert expected.count("sync") == 13  # 24, 30, …, 96


@pytest.mark.parametrize("num_envs", [1, 4])
def test_learning_starts_after_so_many_steps_are_stored(num_envs: int) -> None:
    config = configure("frames=400", f"num_envs={num_envs}", "learning.starts_steps=24")
    loop, stub = stubbed(config, Known(num_envs))
    ticks = list(loop.run())
    first = next(tick for tick in ticks if tick.learnt)
    assert first.steps == 24 + num_envs
    assert stub.stored_when_learning[0] == 24
    # An update learns from what was stored before its step: the emulator runs meanwhile.
    updates = (step for step in range(25, 101))
    assert stub.stored_when_learning == [(step - 1) // num_envs * num_envs for step in updates]


def test_a_tick_gives_what_was_learnt_in_it() -> None:
    loop, _ = stubbed(configure("frames=200", "num_envs=4"), Known(4))
    assert [len(tick.learnt) for tick in loop.run()] == [0] * 5 + [4] * 8  # 52 steps


@pytest.mark.parametrize(
    ("frames", "frames_per_step", "num_envs", "steps"),
    [(100, 1, 1, 100), (100, 4, 1, 25), (101, 4, 1, 26), (100, 4, 4, 28), (1, 4, 1, 1)],
)
def test_the_budget_is_in_frames(
    frames: int, frames_per_step: int, num_envs: int, steps: int
) -> None:
    config = configure(f"frames={frames}", f"num_envs={num_envs}")
    loop, stub = stubbed(config, Known(num_envs, frames_per_step))
    ticks = list(loop.run())
    assert ticks[-1].steps == loop.steps == steps
    assert stub.steps == list(range(0, steps, num_envs))
    assert not list(loop.run())  # it is spent


def test_the_loop_can_be_left_after_any_tick_and_entered_again() -> None:
    loop, stub = stubbed(configure("frames=200"), Known())
    through, whole = stubbed(configure("frames=200"), Known())
    list(through.run())
    while loop.steps < loop.total_steps:
        for tick in loop.run():
            if tick.steps % 7 == 0:
                break
    assert stub.chosen == whole.chosen
    assert stub.begun == whole.begun
    assert loop.store.digest() == through.store.digest()


def test_batches_are_drawn_from_a_stream_of_their_own() -> None:
    drawn = []
    for seed in (0, 0, 1):
        loop, stub = stubbed(configure("frames=200", f"seed={seed}"), Known())
        list(loop.run())
        drawn.append([batch.index.tolist() for batch in stub.batches])
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_prioritised_replay_gets_its_errors_and_a_rising_beta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configure("frames=400", "replay.kind=prioritised", "replay.beta_initial=0.4")
    loop, stub = stubbed(config, Known())
    assert isinstance(loop.replay, PrioritisedReplay)
    assert loop.replay.alpha == 0.6
    betas, updates = [], []
    sample, update = loop.replay.sample, loop.replay.update_priorities

    def watch_sample(size: int, rng: np.random.Generator, *, beta: float) -> TransitionBatch:
        betas.append(beta)
        return sample(size, rng, beta=beta)

    def watch_update(index: Any, error: Any) -> None:
        updates.append((index.tolist(), error.tolist()))
        update(index, error)

    monkeypatch.setattr(loop.replay, "sample", watch_sample)
    monkeypatch.setattr(loop.replay, "update_priorities", watch_update)
    list(loop.run())
    assert betas == pytest.approx([0.4 + 0.6 * step / 100 for step in range(20, 100)])
    assert updates == [(batch.index.tolist(), [0, 1, 2, 3]) for batch in stub.batches]
    assert any(batch.weight.min() < 1 for batch in stub.batches)


# --- state ---------------------------------------------------------------------------------------

ENVIRONMENTS = ("deep_sea/4", "minatar/breakout", "gym/CartPole-v1")


def real(config: Config, folder: Path, learner: Learner | None = None) -> OffPolicyLoop:
    environment = make_configured_environment(config, config.num_envs)
    agent = ValueAgent(config, environment.spec, learner=learner)
    # Fewer rows than steps, so that the window moves and the ring wraps.
    store = make_store(config, environment, folder, capacity=20 * config.num_envs)
    return OffPolicyLoop(config, agent, environment, store)


def advance(loop: OffPolicyLoop, ticks: int) -> list[Any]:
    found = []
    for _, tick in zip(range(ticks), loop.run(), strict=False):
        losses = [learnt.loss for learnt in tick.learnt]
        found.append((tick.steps, tick.finished, losses))
    return found


def snapshot(loop: OffPolicyLoop) -> tuple[dict[str, Tensor], dict[str, Any]]:
    loop.store.flush()
    tensors = {name: value.clone() for name, value in loop.tensors().items()}
    return tensors, json.loads(json.dumps(loop.state()))


def assert_same(first: OffPolicyLoop, second: OffPolicyLoop) -> None:
    ours, theirs = first.tensors(), second.tensors()
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert first.state() == second.state()
    assert first.store.digest() == second.store.digest()
    assert np.array_equal(first.stacks.observation, second.stacks.observation)


def check_continuation(
    config: Config, folder: Path, before: int, after: int, learner: Learner | None = None
) -> None:
    going_on = real(config, folder / "first", learner)
    advance(going_on, before)
    checkpoint = snapshot(going_on)
    continued = advance(going_on, after)
    going_on.store.flush()
    # As after a kill: the files already hold rows of a future that is lost.
    shutil.copytree(folder / "first", folder / "second")
    restored = real(config, folder / "second")  # in one thread, which changes nothing
    restored.restore(*checkpoint)
    restored.play_again()
    assert restored.steps == before * config.num_envs
    assert advance(restored, after) == continued
    assert_same(going_on, restored)
    assert going_on.agent.updates > 0


def test_the_runs_that_are_continued_go_once_round_the_ring(tmp_path: Path) -> None:
    """Or the tests below would show less than they say."""
    loop = real(configure("num_envs=3"), tmp_path)
    advance(loop, 40 + 33)
    assert int(loop.store.written.min()) > loop.store.ring_rows


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_restored_loop_continues_bit_for_bit(name: str, num_envs: int, tmp_path: Path) -> None:
    config = configure(f"num_envs={num_envs}", name=name)
    check_continuation(config, tmp_path, before=40, after=33)


@pytest.mark.parametrize(
    "settings",
    [
        ("replay.kind=prioritised", "replay.capacity_steps=60", "learning.n_step=3"),
        ("exploration.redraw=episode", "exploration.noise=independent", "num_envs=1"),
        ("exploration.redraw=update", "exploration.warm_up=uniform"),
        ("optimiser.kind=centred-rmsprop", "learning.update_period_steps=4"),
    ],
    ids=str,
)
def test_a_restored_loop_continues_with_any_settings(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    config = configure("num_envs=3", "learning.sync_target_steps=7", *settings)
    check_continuation(config, tmp_path, before=30, after=25)


@pytest.mark.parametrize("agent", ["dqn", "noisynet-dueling"])
def test_the_other_agents_continue_too(agent: str, tmp_path: Path) -> None:
    config = configure("num_envs=2", agent=agent, name="gym/CartPole-v1")
    check_continuation(config, tmp_path, before=30, after=25)


@pytest.mark.parametrize("before", [1, 3, 4, 5, 19, 21])
def test_it_continues_from_wherever_in_an_episode(before: int, tmp_path: Path) -> None:
    """Episodes of deep_sea/4 last four steps; learning starts after the twentieth."""
    check_continuation(configure(), tmp_path, before=before, after=30)


def test_it_continues_from_before_the_first_step(tmp_path: Path) -> None:
    check_continuation(configure("num_envs=3"), tmp_path, before=0, after=30)


def test_environments_with_unequal_pasts_reach_the_present_together(tmp_path: Path) -> None:
    """Some episodes are long and some have just begun, and waiting ones may end on the way."""
    config = configure("num_envs=3", name="gym/CartPole-v1")
    loop = real(config, tmp_path / "first")
    lengths = [0]
    while not (lengths[0] == 0 and lengths[-1] > 8):
        assert advance(loop, 1)
        lengths = sorted(len(episode.actions) for episode in loop.episodes)
    checkpoint = snapshot(loop)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    other = real(config, tmp_path / "second")
    other.restore(*checkpoint)
    other.play_again()
    assert_same(loop, other)
    assert advance(loop, 20) == advance(other, 20)


def test_an_environment_that_plays_otherwise_is_refused(tmp_path: Path) -> None:
    loop = real(configure(), tmp_path / "first")
    advance(loop, 31)
    checkpoint = snapshot(loop)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    other = real(configure("environment_options.mapping_seed=7"), tmp_path / "second")
    other.restore(*checkpoint)
    with pytest.raises(RunDamaged, match=r"environment 0 of deep_sea/4 did not play its episode"):
        other.play_again()
