"""Atari 2600 games under the paper's protocol, on ALE's vector environment.

One agent step repeats the action for 4 emulator frames; the observed frame is the maximum of the
last two, in grey, resized to 84×84. Episodes begin with 0 to 30 no-ops and are truncated after
108,000 frames. Rewards are raw; agents clip them for learning.

When a step ends an episode, ALE does not update the screen: the frame of a *terminated* step is one
step old. Nothing is bootstrapped from it. Targets are bootstrapped from the frame of a *truncated*
step, so the frame limit is counted here and ALE has none.

Starting an episode reloads the ROM, which takes as long as about 150 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from noisynet import paper
from noisynet.envs.action_names import atari_action_name
from noisynet.envs.environment import Environment, EnvironmentSpec, Step, check_count
from noisynet.envs.names import ATARI_57, suggestion
from noisynet.extras import import_extra

NO_LIMIT: Final = 2**31 - 1
SCREEN_SIZE: Final = (210, 160)
ORIGINAL_PONG_ACTIONS: Final = (0, 2, 3)  # no-op, right (up), left (down)


@final
class AtariEnvironment(Environment):
    """N copies of one of the 57 games, emulated in threads.

    Args:
        game: ROM name in snake case, such as "ms_pacman".
        num_envs: N.
        colour: return RGB frames of native size, uint8 (210, 160, 3), for videos. The game is the
            same as in grey: the same seed and actions give the same rewards.
        pong_actions: "ale" has 6 actions in Pong, "original" the 3 of the paper's emulator. The
            other games have the same actions in both.
        max_episode_frames: emulator frames after which an episode is truncated, at the end of the
            step that reaches them; opening frames are not counted.
        noop_max: an episode begins with 0, …, noop_max no-op frames, sampled by its seed.
        threads: the number of emulator threads; None for one per core. Results do not depend on it.
    """

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        *,
        colour: bool = False,
        pong_actions: Literal["ale", "original"] = "ale",
        max_episode_frames: int = paper.MAX_EPISODE_FRAMES,
        noop_max: int = paper.NOOP_MAX,
        threads: int | None = None,
    ) -> None:
        if game not in ATARI_57:
            raise ValueError(
                f"expected one of the paper's 57 Atari games, got {game!r}."
                + suggestion(game, ATARI_57)
            )
        check_count("num_envs", num_envs, at_least=1)
        self._max_episode_frames = check_count("max_episode_frames", max_episode_frames, at_least=1)
        check_count("noop_max", noop_max, at_least=0)
        if threads is not None:
            check_count("threads", threads, at_least=1)
        original_pong = _wants_original_pong(game, pong_actions)
        height, width = SCREEN_SIZE if colour else (paper.FRAME_SIZE, paper.FRAME_SIZE)
        self._vector: Any = import_extra("ale_py.vector_env", "atari").AtariVectorEnv(
            game,
            num_envs,
            num_threads=threads or 0,
            max_num_frames_per_episode=NO_LIMIT,
            repeat_action_probability=0.0,
            # Autoreset cannot be disabled. In this mode it never happens here: a finished episode
            # is always restarted with its own seed before the next send.
            autoreset_mode="NextStep",
            img_height=height,
            img_width=width,
            grayscale=not colour,
            # The replay buffer stacks frames; stacking here would store every frame four times.
            stack_num=1,
            frameskip=paper.FRAME_SKIP,
            # In colour, too: otherwise sprites that are drawn every other frame would vanish.
            maxpool=True,
            noop_max=noop_max + 1,  # ALE samples 0, …, noop_max − 1
            episodic_life=False,  # True would restart the whole game after each life
            life_loss_info=False,  # True breaks next-step autoreset
            reward_clipping=False,
            use_fire_reset=False,  # not part of the paper's protocol
        )
        actions = self._vector.ale.get_action_set()
        self._action_ids = np.arange(len(actions))
        if original_pong:
            self._action_ids = np.array(ORIGINAL_PONG_ACTIONS)
        spec = EnvironmentSpec(
            name=f"atari/{game}",
            num_actions=len(self._action_ids),
            frame_shape=(height, width, 3) if colour else (height, width),
            frame_dtype="uint8",
            stack=1 if colour else paper.STACKED_FRAMES,
            frames_per_step=paper.FRAME_SKIP,
            pixel_scale=1 / 255,
            action_names=tuple(
                atari_action_name(actions[index].name) for index in self._action_ids
            ),
        )
        super().__init__(spec, num_envs)
        self._colour = colour
        self._was_reset = False
        self._screens = self._no_frames()
        self._lives = np.zeros(num_envs, dtype=np.int64)
        self._opening_frames = np.zeros(num_envs, dtype=np.int64)
        self._episode_frames = np.zeros(num_envs, dtype=np.int64)

    @property
    def lives(self) -> NDArray[np.int64]:
        """The number of lives left [N]; 0 in games without lives."""
        return self._lives.copy()

    @property
    def opening_frames(self) -> NDArray[np.int64]:
        """The number of frames before each episode's first action [N].

        These are the no-ops, and in Berzerk and Double Dunk also the frames in which ALE begins the
        game.
        """
        return self._opening_frames.copy()

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        asked = np.array([seed is not None for seed in seeds])
        if self._was_reset:
            given = np.array([seed for seed in seeds if seed is not None], dtype=np.int64)
            frames, info = self._vector.reset(seed=given, options={"reset_mask": asked})
        else:
            # ALE's first reset must reset all; those without a seed are started again before use.
            filled = np.array([0 if seed is None else seed for seed in seeds], dtype=np.int64)
            frames, info = self._vector.reset(seed=filled)
            self._was_reset = True
        self._lives = np.where(asked, info["lives"], self._lives)
        self._opening_frames = np.where(asked, info["episode_frame_number"], self._opening_frames)
        self._episode_frames[asked] = 0
        return self._unstack(frames)

    def _send(self, actions: NDArray[np.int64]) -> None:
        self._vector.send(self._action_ids[actions])

    def _recv(self, actions: NDArray[np.int64]) -> Step:  # noqa: ARG002
        frames, reward, terminated, _, info = self._vector.recv()
        lives = info["lives"].astype(np.int64)
        # Only a decrease counts: some games add lives, and some counters briefly go up.
        life_lost = lives < self._lives
        self._lives = lives
        self._episode_frames += paper.FRAME_SKIP
        truncated = self._episode_frames >= self._max_episode_frames
        return Step(
            frame=self._unstack(frames),
            reward=reward.astype(np.float64),
            terminated=terminated,
            truncated=truncated & ~terminated,
            life_lost=life_lost,
        )

    def _screen(self, index: int) -> NDArray[np.uint8]:
        if not self._colour:
            raise RuntimeError(
                f"{self.spec.name} has grey frames only: make it with colour=True to have screens "
                "(the same seed and actions replay the same game)"
            )
        screen: NDArray[np.uint8] = self._screens[index].copy()
        return screen

    def _unstack(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Drop the stack axis of [N, 1, …] and, in colour, store the screens."""
        if self._colour:
            self._screens = frames[:, 0].copy()
        return frames[:, 0]

    def _close(self) -> None:
        if self._sent is not None:
            self._vector.recv()
        self._vector.close()
        self._vector = None  # its threads end with it


def _wants_original_pong(game: str, pong_actions: str) -> bool:
    if pong_actions not in ("ale", "original"):
        raise ValueError(f"expected pong_actions 'ale' or 'original', got {pong_actions!r}")
    if pong_actions == "original" and game != "pong":
        raise ValueError(
            f"pong_actions='original' is for atari/pong only, got atari/{game}: leave it at 'ale'"
        )
    return pong_actions == "original"
