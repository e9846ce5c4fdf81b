"""CleanRL's rainbow_atari.py: cleanrl_audit.py FOLDER, a checkout.

The script's loop is not a function. Its statements that act and that learn are taken from its
syntax tree and executed as they are, on synthetic frames.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import CodeType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import torch
from audit_entry import audit_layer, hand_over
from turns import commit

from noisynet.audit import audit_network

FRAMES = (4, 84, 84)
folder = Path(sys.argv[1])
tree = ast.parse((folder / "cleanrl" / "rainbow_atari.py").read_text())


def compiled(statements: list[ast.stmt]) -> CodeType:
    """Statements of the script, to be executed."""
    return compile(ast.Module(statements, []), "rainbow_atari.py", "exec")


# What the audit does not need: the command line, TensorBoard and the wrappers of Atari.
for name in ("tyro", "torch.utils.tensorboard", "cleanrl_utils", "cleanrl_utils.atari_wrappers"):
    sys.modules[name] = MagicMock()
sys.modules["rainbow_atari"] = MagicMock()  # where dataclasses look up the module
script: dict = {"__name__": "rainbow_atari", "__file__": "rainbow_atari.py"}
*definitions, main = tree.body
exec(compiled(definitions), script)
loop = next(node for node in main.body if isinstance(node, ast.For))
acting = [node for node in loop.body if isinstance(node, ast.With)]
(training,) = [node for node in loop.body if "learning_starts" in ast.unparse(node)]
learning, synchronising = (compiled(part.body) for part in training.body)

args = script["Args"](batch_size=4, buffer_size=64)
environment = SimpleNamespace(single_action_space=SimpleNamespace(n=6))
online, target = (
    script["NoisyDuelingDistributionalNetwork"](environment, args.n_atoms, args.v_min, args.v_max)
    for _ in range(2)
)
target.load_state_dict(online.state_dict())
data = np.random.default_rng(0)


def frames() -> np.ndarray:
    """Four random frames."""
    return data.integers(0, 256, (1, *FRAMES), dtype=np.uint8)


replay = script["PrioritizedReplayBuffer"](args.buffer_size, FRAMES, "cpu", args.n_step, args.gamma)
for _ in range(args.buffer_size):
    replay.add(frames(), data.integers(6), data.normal(), frames(), False)
script |= {
    "args": args,
    "q_network": online,
    "target_network": target,
    "optimizer": torch.optim.Adam(online.parameters(), lr=args.learning_rate, eps=1.5e-4),
    "rb": replay,
    "device": "cpu",
    "global_step": 1,  # not a step at which it logs
}


def act() -> None:
    """Take one action."""
    script["obs"] = frames()
    exec(compiled(acting), script)


report = audit_network(
    online,
    target=target,
    act=act,
    learn=lambda: exec(learning, script),
    sync=lambda: exec(synchronising, script),
    contract="update",
    noise="factorised",  # "factorized gaussian noise" in a comment of its layer
)
hand_over(
    commit(folder),
    layer=(
        "`NoisyLinear` of `rainbow_atari.py`",
        "resampled by `reset_noise`",
        audit_layer(script["NoisyLinear"], noise="factorised"),
    ),
    agent=(
        "`rainbow_atari.py`",
        "the statements of its loop; noise is due after every update; it has no evaluation",
        report,
    ),
)
