"""Our value agents: ours.py AGENT ENVIRONMENT UPDATE_PERIOD WARM_UP [SETTING ...]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from turn import Turns

from noisynet.config import Config, build_config
from noisynet.loops import open_run
from noisynet.runs import RunFolder

agent, environment, update_period, warm_up = sys.argv[1:5]
settings = [
    "replay.capacity_steps=20000",
    f"learning.starts_steps={warm_up}",
    f"learning.update_period_steps={update_period}",
    "evaluation.period_frames=4000000000",
    "checkpoint_period_frames=40000",
]
settings += sys.argv[5:]
if not agent.startswith("noisynet"):
    settings += ["exploration.anneal_steps=100", "exploration.final=0.1"]  # as the others
config = build_config(agent, environment, frames=4 * 10**9, settings=settings)
assert isinstance(config, Config)
with tempfile.TemporaryDirectory() as parent:
    stored = config.model_dump(mode="json")
    folder = RunFolder.create_or_open(Path(parent) / "run", stored, must_match=[])
    with open_run(config, folder) as run:
        turns = Turns(int(warm_up) + 200)
        for _ in run.trainer.advance(lambda: False):
            if not all(turns.step() for _ in range(config.num_envs)):
                break
