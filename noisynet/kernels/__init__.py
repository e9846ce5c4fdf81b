"""Compiled kernels for what PyTorch is measurably slow at on a CPU; the only users of numba.

Each kernel is a drop-in for a plain definition elsewhere in the package and tested equal to it.
Install with `pip install "noisynet[kernels]"`; without it the plain definitions are used.
"""
