from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from noisynet.runs.checkpoint import (
    Checkpoint,
    CheckpointMismatch,
    NoUsableCheckpoint,
    load_newest,
    save_checkpoint,
)
from noisynet.runs.sealed import seal, unseal

_IDENTITY = {"agent": "dqn", "environment": "atari/pong", "num_actions": 6}


def _checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"w": torch.full((3, 5), float(step))}, {"step": step})


def _save(folder: Path, step: int, **options: Any) -> Path:
    options = {"schema": "1", "identity": _IDENTITY, **options}
    return save_checkpoint(folder, _checkpoint(step), **options)


def _load(folder: Path, **options: Any) -> tuple[Checkpoint | None, list[tuple[int, str]]]:
    options = {"schema": "1", "identity": _IDENTITY, **options}
    checkpoint, skipped = load_newest(folder, **options)
    if checkpoint is not None:
        assert torch.equal(checkpoint.tensors["w"], torch.full((3, 5), float(checkpoint.step)))
        assert checkpoint.state == {"step": checkpoint.step}
    return checkpoint, [(entry.step, entry.reason) for entry in skipped]


def _step(folder: Path) -> int:
    checkpoint, skipped = _load(folder)
    assert checkpoint is not None
    assert skipped == []
    return checkpoint.step


def _path(folder: Path, step: int) -> Path:
    return folder / f"{step:012d}.safetensors"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- round trips


def test_tensors_keep_dtype_shape_and_bits(tmp_path: Path) -> None:
    shared = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    odd = torch.tensor([0x7FC00001, -0x3FFFFF, -(2**31), 1], dtype=torch.int32)
    tensors = {
        "generator": torch.Generator().manual_seed(3).get_state(),
        "nan payloads and −0": odd.view(torch.float32),
        "float64": torch.tensor([1 / 3, float("inf")], dtype=torch.float64),
        "int64": torch.tensor([2**62 + 1, -1]),
        "bool": torch.tensor([[True], [False]]),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "empty": torch.empty(0, 3),
        "empty bytes": torch.empty(0, dtype=torch.uint8),
        "scalar": torch.tensor(2.5),
        "whole": shared,
        "same": shared,
        "transposed": shared.t(),
        "strided": shared[::2, 1::3],
        "expanded": torch.tensor([7]).expand(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "channels last": torch.arange(48.0)
        .reshape(1, 3, 4, 4)
        .to(memory_format=torch.channels_last),
    }
    save_checkpoint(tmp_path, Checkpoint(0, tensors, {}), schema="1", identity={})
    loaded, _ = load_newest(tmp_path, schema="1", identity={})
    assert loaded is not None
    assert set(loaded.tensors) == set(tensors)
    for name, tensor in tensors.items():
        back = loaded.tensors[name]
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape), name
        assert _bits(back) == _bits(tensor), name
        assert back.is_contiguous()
        assert not back.requires_grad
    loaded.tensors["whole"].zero_()  # writable, with its own memory
    assert torch.equal(loaded.tensors["same"], shared)
    torch.Generator().set_state(loaded.tensors["generator"])


def _bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def test_state_keeps_generators_and_nested_lists(tmp_path: Path) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    generator.random(5)
    state = {
        "replay": generator.bit_generator.state,
        "actions": [[1, 2], [], [[3]]],
        "best": float("-inf"),
        "name": "nan",
        "none": None,
    }
    save_checkpoint(tmp_path, Checkpoint(1, {}, state), schema="1", identity={})
    loaded, _ = load_newest(tmp_path, schema="1", identity={})
    assert loaded is not None
    assert loaded.tensors == {}
    assert loaded.state == state
    again = np.random.Generator(np.random.PCG64(0))
    again.bit_generator.state = loaded.state["replay"]
    assert again.random() == generator.random()


def test_the_same_checkpoint_is_the_same_bytes(tmp_path: Path) -> None:
    first, second = _save(tmp_path / "a", 5), _save(tmp_path / "b", 5)
    assert first.read_bytes() == second.read_bytes()


def test_what_cannot_be_saved_is_rejected_before_anything_is_written(
    tmp_path: Path,
) -> None:
    def save(checkpoint: Checkpoint, **options: Any) -> None:
        save_checkpoint(tmp_path / "c", checkpoint, schema="1", identity={}, **options)

    with pytest.raises(TypeError, match=r"a\.b: expected .* got Tensor"):
        save(Checkpoint(0, {}, {"a": {"b": torch.ones(1)}}))
    with pytest.raises(ValueError, match="__metadata__"):
        save(Checkpoint(0, {"__metadata__": torch.ones(1)}, {}))
    with pytest.raises(ValueError, match="to_dense"):
        save(Checkpoint(0, {"s": torch.eye(2).to_sparse()}, {}))
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        save(Checkpoint(-1, {}, {}))
    with pytest.raises(ValueError, match="expected keep ≥ 2"):
        save(Checkpoint(0, {}, {}), keep=1)
    assert not (tmp_path / "c").exists()


# ---- generations


def test_an_empty_or_missing_folder_is_a_new_start(tmp_path: Path) -> None:
    assert _load(tmp_path / "missing") == (None, [])
    assert _load(tmp_path) == (None, [])


@pytest.mark.parametrize("keep", [2, 3])
def test_the_newest_generations_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (0, 5, 100, 10**12, 10**13):
        _save(tmp_path, step, keep=keep)
        assert _step(tmp_path) == step
    kept = [100, 10**12, 10**13][-keep:]
    assert sorted(int(name.removesuffix(".safetensors")) for name in _names(tmp_path)) == kept


def test_a_corrupt_generation_does_not_count_among_those_kept(tmp_path: Path) -> None:
    for step in (1, 2):
        _save(tmp_path, step)
    _path(tmp_path, 2).write_bytes(b"{}")
    _save(tmp_path, 3)
    _path(tmp_path, 3).write_bytes(b"{}")
    checkpoint, skipped = _load(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert [step for step, _ in skipped] == [3, 2]


def test_a_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    _save(tmp_path, 2)
    again = Checkpoint(2, {"w": torch.zeros(1)}, {"second": True})
    save_checkpoint(tmp_path, again, schema="1", identity=_IDENTITY)
    loaded, _ = load_newest(tmp_path, schema="1", identity=_IDENTITY)
    assert loaded is not None
    assert loaded.state == {"second": True}
    assert _names(tmp_path) == ["000000000001.safetensors", "000000000002.safetensors"]


def test_saving_a_step_before_the_newest_is_rejected(tmp_path: Path) -> None:
    _save(tmp_path, 7)
    with pytest.raises(ValueError, match="already has step 7, which is after 6"):
        _save(tmp_path, 6)
    assert _names(tmp_path) == ["000000000007.safetensors"]


@pytest.mark.parametrize("use", [lambda folder: _save(folder, 8), _load])
def test_temporary_files_of_a_killed_process_are_removed(
    tmp_path: Path, use: Callable[[Path], object]
) -> None:
    half = _save(tmp_path, 7).read_bytes()[:100]
    (tmp_path / ".000000000009.safetensors.tmp-123").write_bytes(half)
    use(tmp_path)
    assert [name for name in _names(tmp_path) if name.startswith(".")] == []
    assert _step(tmp_path) in (7, 8)


# ---- damage


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _flip(fraction: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[round(fraction * (len(data) - 1))] ^= 1
        path.write_bytes(bytes(data))

    return damage


_DAMAGES: list[Callable[[Path], None]] = [_truncate, _half, _empty, _extend, _to_folder]
_DAMAGES += [_flip(0.0), _flip(0.5), _flip(1.0)]


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_newest_checkpoint_is_renamed_and_the_previous_one_used(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    _save(tmp_path, 1)
    damage(_save(tmp_path, 2))
    before = _names(tmp_path)
    checkpoint, skipped = _load(tmp_path, repair=False)
    assert checkpoint is not None
    assert _names(tmp_path) == before  # a reader moves nothing

    checkpoint, skipped = _load(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    ((step, reason),) = skipped
    assert step == 2
    assert reason == "it does not match its SHA-256." or "got a folder; noisynet reads" in reason
    aside = "000000000002.safetensors.corrupt"
    assert _names(tmp_path) == ["000000000001.safetensors", aside]
    _save(tmp_path, 2)  # the run goes on over the same steps
    assert _step(tmp_path) == 2
    assert aside in _names(tmp_path)


def test_a_second_corrupt_checkpoint_of_a_step_does_not_replace_the_first(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    for _ in range(3):
        _empty(_save(tmp_path, 2))
        _load(tmp_path)
    aside = [name for name in _names(tmp_path) if "corrupt" in name]
    assert aside == [f"000000000002.safetensors.corrupt{suffix}" for suffix in ("", "-2", "-3")]


def test_damaged_checkpoints_only_are_never_a_new_start(tmp_path: Path) -> None:
    for step in (1, 2):
        _empty(_save(tmp_path, step))
    with pytest.raises(NoUsableCheckpoint, match="none is usable") as caught:
        _load(tmp_path)
    for step in (1, 2):
        aside = f"{_path(tmp_path, step)}.corrupt"
        assert f"{aside}: it does not match its SHA-256." in str(caught.value)
    with pytest.raises(NoUsableCheckpoint):  # nor is it the second time
        _load(tmp_path)


def test_a_renamed_checkpoint_is_not_loaded_as_another_step(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    shutil.copy(_path(tmp_path, 1), _path(tmp_path, 5))
    checkpoint, skipped = _load(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert skipped == [(5, "it is named 000000000005.safetensors but was written as step 1.")]


# ---- other runs


def test_the_checkpoint_of_another_run_or_version_is_rejected(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    other = {"agent": "noisynet-dqn", "environment": "atari/breakout", "num_actions": 4}
    with pytest.raises(CheckpointMismatch) as caught:
        _load(tmp_path, identity=other)
    message = str(caught.value)
    assert "is for agent 'dqn', environment 'atari/pong', num_actions 6;" in message
    assert "this run is agent 'noisynet-dqn', environment 'atari/breakout', num_actions" in message
    with pytest.raises(CheckpointMismatch, match=r"schema 1, this version .* reads schema 2;"):
        _load(tmp_path, schema="2")
    with pytest.raises(CheckpointMismatch):
        _load(tmp_path, identity={**_IDENTITY, "dueling": True})
    assert _names(tmp_path) == ["000000000001.safetensors"]
    reordered = dict(reversed(_IDENTITY.items()))
    assert _load(tmp_path, identity=reordered)[0] is not None


def test_a_later_layout_is_a_mismatch_and_not_damage(tmp_path: Path) -> None:
    path = _save(tmp_path, 1)
    header = unseal(path.read_bytes()) | {"format": 3}
    path.write_bytes(seal(save, {}, header))
    message = "layout 3, .* reads layout 2; resume the run with the version that started it"
    with pytest.raises(CheckpointMismatch, match=message):
        _load(tmp_path)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_malicious_pickle_is_skipped_without_being_executed(tmp_path: Path, sealed: bool) -> None:
    _save(tmp_path, 1)
    path = _save(tmp_path, 2)
    witness = tmp_path / "witness"
    evil = f"cposix\nsystem\n(Vtouch {witness}\ntR.".encode()  # runs a command if unpickled
    if sealed:  # even in a file that verifies
        header = unseal(path.read_bytes())
        path.write_bytes(seal(lambda _, text: save({}, text) + evil, {}, header))
    else:
        path.write_bytes(evil)
    checkpoint, skipped = _load(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert skipped == [(2, "it does not match its SHA-256.")]
    assert not witness.exists()
