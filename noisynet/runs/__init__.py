"""Runs that survive: the run folder, its lock, metrics, traces, checkpoints. Needs no torch."""

from __future__ import annotations

from noisynet.runs.checkpoint import (
    Checkpoint,
    CheckpointMismatch,
    NoUsableCheckpoint,
    Skipped,
    load_newest,
    save_checkpoint,
)
from noisynet.runs.files import RunDamaged, RunError, StorageError, write_atomically
from noisynet.runs.lock import EXIT_LOCKED, Owner, RunLock, RunLocked
from noisynet.runs.metrics import MetricsLog, read_metrics
from noisynet.runs.segments import SegmentHashes
from noisynet.runs.store import Difference, RunFolder, RunMismatch, RunState
from noisynet.runs.traces import Trace, TraceFile, list_traces, read_traces, write_traces

__all__ = [
    "EXIT_LOCKED",
    "Checkpoint",
    "CheckpointMismatch",
    "Difference",
    "MetricsLog",
    "NoUsableCheckpoint",
    "Owner",
    "RunDamaged",
    "RunError",
    "RunFolder",
    "RunLock",
    "RunLocked",
    "RunMismatch",
    "RunState",
    "SegmentHashes",
    "Skipped",
    "StorageError",
    "Trace",
    "TraceFile",
    "list_traces",
    "load_newest",
    "read_metrics",
    "read_traces",
    "save_checkpoint",
    "write_atomically",
    "write_traces",
]
