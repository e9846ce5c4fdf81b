"""Run folders: lock, status, metrics, traces and checkpoints. Imports without torch."""

from __future__ import annotations

from noisynet.runs.agent_file import AgentFile, load_agent_file, save_agent_file
from noisynet.runs.checkpoint import (
    Checkpoint,
    CheckpointMismatch,
    NoUsableCheckpoint,
    Skipped,
    load_newest,
    save_checkpoint,
)
from noisynet.runs.files import RunDamaged, RunError, StorageError, write_atomically
from noisynet.runs.lock import EXIT_LOCKED, RunLock, RunLocked
from noisynet.runs.metrics import MetricsLog, NoMetrics, read_metrics
from noisynet.runs.reading import Owner, RunStatus
from noisynet.runs.record import RunRecord, Unreadable, read_run
from noisynet.runs.store import (
    CHANGEABLE_SETTINGS,
    Difference,
    RunFolder,
    RunMismatch,
    compare_configs,
    find_run_folders,
)
from noisynet.runs.traces import Trace, TraceFile, list_traces, read_traces, write_traces

__all__ = [
    "CHANGEABLE_SETTINGS",
    "EXIT_LOCKED",
    "AgentFile",
    "Checkpoint",
    "CheckpointMismatch",
    "Difference",
    "MetricsLog",
    "NoMetrics",
    "NoUsableCheckpoint",
    "Owner",
    "RunDamaged",
    "RunError",
    "RunFolder",
    "RunLock",
    "RunLocked",
    "RunMismatch",
    "RunRecord",
    "RunStatus",
    "Skipped",
    "StorageError",
    "Trace",
    "TraceFile",
    "Unreadable",
    "compare_configs",
    "find_run_folders",
    "list_traces",
    "load_agent_file",
    "load_newest",
    "read_metrics",
    "read_run",
    "read_traces",
    "save_agent_file",
    "save_checkpoint",
    "write_atomically",
    "write_traces",
]
