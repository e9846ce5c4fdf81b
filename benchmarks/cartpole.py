"""Whole training on gym/CartPole-v1 with an update per step: ours against the peers'.

    python benchmarks/cartpole.py --sb3 PYTHON --jax PYTHON

Two hidden layers of 64 units, batch 32, Adam, a replay of 20,000 steps. The contestants are those
of `minatar.py`; see `dqn.py` for the options. It takes about 5 minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from training import parse, run_tables, small_network_table

RESULTS = Path(__file__).parent / "results" / "cartpole.json"
PEERS: Final = ("sb3", "jax")


def main() -> None:
    """Let the contestants take turns."""
    options = parse("Agent steps per second on gym/CartPole-v1", PEERS, rounds=10, steps=1000)
    table = small_network_table("gym/CartPole-v1", options, {"": ()})
    run_tables({"update every step": table}, options, PEERS, RESULTS)


if __name__ == "__main__":
    main()
