"""A large matrix product, for the best speed of the processor: matrix_product.py SIDE THREADS."""

from __future__ import annotations

import sys

import torch
from turn import Turns

side, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
left, right, out = (torch.randn(side, side) for _ in range(3))
turns = Turns(5)
while True:
    torch.mm(left, right, out=out)
    if not turns.step():
        break
