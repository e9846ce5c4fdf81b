"""Manifests of checkpoints: damage, other runs and other versions."""

from __future__ import annotations

import json

import pytest

from noisynet.runs.manifest import (
    CheckpointMismatch,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
    _seal,
)

IDENTITY = {"agent": "dqn", "environment": "atari/pong", "num_actions": 6}
MANIFEST = Manifest(3, "value/1", IDENTITY, {"state.json": FileRecord.of(b"{}")})
WHAT_TO_DO = "resume the run with the version that started it, or start a new run with another"


def test_a_manifest_decodes_to_what_it_was() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST


def test_every_flipped_bit_is_detected() -> None:
    data = MANIFEST.encode()
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptCheckpoint):
            Manifest.decode(bytes(flipped))


def test_a_file_is_checked_by_size_and_hash() -> None:
    record = FileRecord.of(b"content")
    record.check("state.json", b"content")
    with pytest.raises(CorruptCheckpoint, match=r"state\.json has 3 bytes instead of 7"):
        record.check("state.json", b"con")
    with pytest.raises(CorruptCheckpoint, match=r"state\.json does not match its SHA-256"):
        record.check("state.json", b"CONTENT")


def test_a_later_layout_is_a_mismatch_and_not_damage() -> None:
    body = json.loads(MANIFEST.encode())
    del body["sha256"]
    with pytest.raises(CheckpointMismatch, match=f"layout 2, .* reads layout 1; {WHAT_TO_DO}"):
        Manifest.decode(_seal({**body, "format": 2}))


def test_a_checkpoint_belongs_to_runs_of_the_same_identity_and_schema() -> None:
    MANIFEST.check_belongs("value/1", dict(reversed(IDENTITY.items())))
    for other in ({**IDENTITY, "agent": "dueling"}, {**IDENTITY, "seed": 0}, {"agent": "dqn"}):
        with pytest.raises(CheckpointMismatch, match=r"is for agent 'dqn', .*; this run is agent"):
            MANIFEST.check_belongs("value/1", other)
    with pytest.raises(CheckpointMismatch, match=f"value/1, .* schema value/2; {WHAT_TO_DO}"):
        MANIFEST.check_belongs("value/2", IDENTITY)
