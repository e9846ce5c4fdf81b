"""Whole training on minatar/breakout with an update per frame: ours against the peers'.

    python benchmarks/minatar.py --sb3 PYTHON --jax PYTHON

The workload is Young & Tian's: one convolution of 16 filters, 128 hidden units, batch 32, a replay
of 20,000 steps. The contestants are our agents, stable-baselines3's DQN, a plain loop in the manner
of CleanRL, and a whole training loop jitted in JAX; see `dqn.py` for the options. It takes about 8
minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from training import parse, run_tables, small_network_table

RESULTS = Path(__file__).parent / "results" / "minatar.json"
PEERS: Final = ("sb3", "jax")
JAX_FORMS: Final = {"": (), ", convolution as a product": ("product",)}


def main() -> None:
    """Let the contestants take turns."""
    options = parse("Agent steps per second on minatar/breakout", PEERS, rounds=10, steps=400)
    table = small_network_table("minatar/breakout", options, JAX_FORMS)
    run_tables({"update every step": table}, options, PEERS, RESULTS)


if __name__ == "__main__":
    main()
