"""The off-policy loop: what it stores, and when it learns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from loops.known_games import STACK, KnownGames
from loops.short_loops import configure, make_store
from noisynet.agents import Learnt, ValueAgent
from noisynet.config import Config
from noisynet.envs import Environment, episode_seed
from noisynet.loops import OffPolicyLoop
from noisynet.replay import FrameStore, PrioritisedReplay, TransitionBatch
from noisynet.replay.transitions import BatchBuilder

GAMMA = 0.75  # exact in float32


@dataclass
class Stub:
    """An agent that acts at random and records every call."""

    store: FrameStore
    calls: list[str] = field(default_factory=list)
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

    def learn(self, batch: TransitionBatch) -> Learnt:
        self.calls.append("learn")
        self.stored_when_learning.append(self.store.count())
        self.batches.append(batch.copy())
        return Learnt(0.0, np.arange(len(batch.action), dtype=np.float32), 0.0)

    def sync_target(self) -> None:
        self.calls.append("sync")

    def begin_episode(self) -> None:
        self.begun += 1


def stubbed(config: Config, environment: Environment) -> tuple[OffPolicyLoop, Stub]:
    store = make_store(config, environment)
    stub = Stub(store)
    return OffPolicyLoop(config, cast("ValueAgent", stub), environment, store), stub


# --- storage ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transition:
    x: list[list[float]]
    action: int
    reward: float
    discount: float
    y: list[list[float]]


def expected_transitions(env: int, actions: list[int], clip: bool) -> list[Transition]:
    """Compute what environment `env` must have stored, from the definition of its games."""
    found, number, time = [], 0, 0
    seed = episode_seed(0, "train", env, number)
    frames = [np.zeros(3, np.float32)] * (STACK - 1) + [KnownGames.frame(seed, 0, 0)]
    for action in actions:
        time += 1
        after = [*frames[1:], KnownGames.frame(seed, time, action)]
        reward = KnownGames.reward(time, action)
        terminated, truncated, life = KnownGames.end(seed, time)
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
            frames = [np.zeros(3, np.float32)] * (STACK - 1) + [KnownGames.frame(seed, 0, 0)]
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
    loop, stub = stubbed(config, KnownGames(num_envs))
    assert len(list(loop.run())) == 300 // num_envs
    for env in range(num_envs):
        actions = [chosen[env] for chosen in stub.chosen]
        expected = expected_transitions(env, actions, clip)
        assert stored_transitions(loop.store, env) == expected
        # The agent saw what was stored.
        assert [seen[env].tolist() for seen in stub.seen] == [found.x for found in expected]


def test_the_known_games_end_in_every_way() -> None:
    """The test above covers every kind of end."""
    seeds = [episode_seed(0, "train", 0, number) for number in range(40)]
    assert {KnownGames.end(seed, KnownGames.length(seed)) for seed in seeds} == {
        (True, False, False),
        (False, True, False),
        (True, False, True),
        (False, True, True),
    }


def test_truncation_keeps_the_discount_and_termination_and_lost_lives_do_not() -> None:
    loop, _ = stubbed(configure("frames=1200", f"learning.discount={GAMMA}"), KnownGames())
    list(loop.run())
    stored = stored_transitions(loop.store, 0)
    by_end: dict[tuple[bool, bool, bool], set[float]] = {}
    seeds = iter(episode_seed(0, "train", 0, number) for number in range(1_000))
    seed, time = next(seeds), 0
    for transition in stored:
        time += 1
        terminated, truncated, life = KnownGames.end(seed, time)
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
    loop, stub = stubbed(config, KnownGames(2))
    finished = [episode for tick in loop.run() for episode in tick.finished]
    for env in range(2):
        numbers = [episode.number for episode in finished if episode.env == env]
        assert numbers == list(range(len(numbers)))
        actions = iter(chosen[env] for chosen in stub.chosen)
        for episode in (episode for episode in finished if episode.env == env):
            length = KnownGames.length(episode_seed(0, "train", env, episode.number))
            assert episode.steps == length
            score = sum(KnownGames.reward(time + 1, next(actions)) for time in range(length))
            assert episode.score == score
    assert stub.begun == len(finished) + 2  # and the two that are running


# --- updates ------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [1, 4])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_updates_and_target_copies_are_due_by_steps_for_any_number_of_environments(
    num_envs: int, period: int
) -> None:
    config = configure(
        "frames=400",
        f"num_envs={num_envs}",
        f"learning.update_period_steps={period}",
        "learning.sync_target_steps=6",
    )
    loop, stub = stubbed(config, KnownGames(num_envs))
    expected: list[str] = []
    for tick in loop.run():
        for step in range(tick.steps - num_envs + 1, tick.steps + 1):
            if step > 20:
                expected += ["learn"] if step % period == 0 else []
                expected += ["sync"] if step % 6 == 0 else []
        assert stub.calls == expected
        assert tick.steps == num_envs * len(stub.chosen)
    assert expected.count("learn") == 80 // period
    assert expected.count("sync") == 13  # 24, 30, …, 96


@pytest.mark.parametrize("num_envs", [1, 4])
def test_learning_starts_after_starts_steps(num_envs: int) -> None:
    config = configure("frames=400", f"num_envs={num_envs}", "learning.starts_steps=24")
    loop, stub = stubbed(config, KnownGames(num_envs))
    ticks = list(loop.run())
    first = next(tick for tick in ticks if tick.learnt)
    assert first.steps == 24 + num_envs
    assert stub.stored_when_learning[0] == 24
    # An update uses what was stored before its step, because the emulator runs meanwhile.
    updates = (step for step in range(25, 101))
    assert stub.stored_when_learning == [(step - 1) // num_envs * num_envs for step in updates]


def test_a_tick_has_the_updates_made_in_it() -> None:
    loop, _ = stubbed(configure("frames=200", "num_envs=4"), KnownGames(4))
    assert [len(tick.learnt) for tick in loop.run()] == [0] * 5 + [4] * 8  # 52 steps


@pytest.mark.parametrize(
    ("frames", "frames_per_step", "num_envs", "steps"),
    [(100, 1, 1, 100), (100, 4, 1, 25), (101, 4, 1, 26), (100, 4, 4, 28), (1, 4, 1, 1)],
)
def test_the_budget_is_in_frames(
    frames: int, frames_per_step: int, num_envs: int, steps: int
) -> None:
    config = configure(f"frames={frames}", f"num_envs={num_envs}")
    loop, stub = stubbed(config, KnownGames(num_envs, frames_per_step))
    ticks = list(loop.run())
    assert ticks[-1].steps == loop.steps == steps
    assert stub.steps == list(range(0, steps, num_envs))
    assert not list(loop.run())  # the budget is spent


def test_the_loop_can_be_left_after_any_tick_and_run_again() -> None:
    loop, stub = stubbed(configure("frames=200"), KnownGames())
    through, whole = stubbed(configure("frames=200"), KnownGames())
    list(through.run())
    while loop.steps < loop.total_steps:
        for tick in loop.run():
            if tick.steps % 7 == 0:
                break
    assert stub.chosen == whole.chosen
    assert stub.begun == whole.begun
    assert loop.store.digest() == through.store.digest()


def test_batches_are_sampled_from_their_own_random_stream() -> None:
    drawn = []
    for seed in (0, 0, 1):
        loop, stub = stubbed(configure("frames=200", f"seed={seed}"), KnownGames())
        list(loop.run())
        drawn.append([batch.index.tolist() for batch in stub.batches])
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_prioritised_replay_receives_td_errors_and_an_annealed_beta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configure("frames=400", "replay.kind=prioritised", "replay.beta_initial=0.4")
    loop, stub = stubbed(config, KnownGames())
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
