"""What a training process sets for itself holds in all of torch's threads, fresh or continued."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
from noisynet.config import build_config
from noisynet.loops import rehearse
torch.set_num_threads(2)
rehearse(build_config("dqn", "minatar/breakout"))
tiny = torch.full((1_000_000,), 1e-30)  # both threads take part
print(int((tiny * 1e-10 != 0).sum()))
"""


def test_denormals_are_flushed_in_every_thread_even_after_a_rehearsal() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "0"
