"""Tiles: 6 × 16 numbers of a matrix product, summed in the registers of a processor.

A processor multiplies and adds at full speed only while it keeps its sums in registers, which
Python's loops cannot ask for; so this one loop is written in the compiler's own language. Every
convolution and every large layer is made of it.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from noisynet.compiled import compiled

# 12 sums, two pieces of w and one x: 15 of the 16 registers that processors with AVX2 have.
ROWS: Final = 6
COLUMNS: Final = 16
_WIDE: Final = 8  # numbers of a register, of which there are two in a row

_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)


def _add_tile(
    _typing: Any,
    out: Any,
    outs: Any,
    x: Any,
    xs: Any,
    lines: Any,
    run: Any,  # noqa: ARG001 — these three are integers, whatever they are
    w: Any,
    first: Any,  # noqa: ARG001
    step: Any,  # noqa: ARG001
) -> Any:
    integer = types.int64
    return types.void(out, outs, x, xs, lines, integer, w, integer, integer), _tile_code


add_tile: Any = intrinsic(_add_tile)
"""Add a product to 6 rows of 16 numbers, in a compiled function.

add_tile(out, outs, x, xs, lines, run, w, first, step) is, for r < 6 and c < 16,

    out[outs[r] + c] += Σ_l Σ_i x[xs[r] + lines[l] + i] · w[first + (l · run + i) · step + c].

Each row has its own numbers of x, from xs[r] on: pieces of `run` numbers that begin at `lines` from
there. All rows have the same numbers of w, 16 of them at every step. Arrays are taken as they lie
in memory; nothing is checked. Rows of `out` may overlap: they are added to one after the other.
"""


def _tile_code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    of_out, outs, of_x, xs, of_lines, run, of_w, first, step = arguments
    out, x, lines, w = (
        context.make_array(signature.args[place])(context, builder, value)
        for place, value in ((0, of_out), (2, of_x), (4, of_lines), (6, of_w))
    )
    vector = ir.VectorType(context.get_data_type(signature.args[0].dtype), _WIDE)
    sums = [[cgutils.alloca_once(builder, vector) for _ in range(2)] for _ in range(ROWS)]
    for pair in sums:
        for place in pair:
            builder.store(ir.Constant(vector, [0.0] * _WIDE), place)

    rows = [builder.gep(x.data, [builder.extract_value(xs, r)]) for r in range(ROWS)]
    of_w = builder.gep(w.data, [first])
    multiply_add = _multiply_add(builder, vector)
    with cgutils.for_range(builder, builder.extract_value(lines.shape, 0)) as line:
        begins = builder.load(builder.gep(lines.data, [line.index]))
        pieces = [builder.gep(row, [begins]) for row in rows]
        before = builder.mul(builder.mul(line.index, run), step)
        with cgutils.for_range(builder, run) as item:
            at = builder.gep(of_w, [builder.add(before, builder.mul(item.index, step))])
            factors = [_load(builder, vector, at, half) for half in range(2)]
            for piece, pair in zip(pieces, sums, strict=True):
                number = builder.load(builder.gep(piece, [item.index]))
                spread = _spread(builder, vector, number)
                for place, factor in zip(pair, factors, strict=True):
                    total = builder.call(multiply_add, [spread, factor, builder.load(place)])
                    builder.store(total, place)

    for r, pair in enumerate(sums):
        at = builder.gep(out.data, [builder.extract_value(outs, r)])
        for half, place in enumerate(pair):
            total = builder.fadd(_load(builder, vector, at, half), builder.load(place))
            kept = builder.store(total, _half(builder, vector, at, half))
            kept.align = 4  # wherever a row begins
    return context.get_dummy_value()


def _multiply_add(builder: Any, vector: Any) -> Any:
    """a · b + c, rounded once by processors that can."""
    name = f"llvm.fmuladd.v{_WIDE}{vector.element.intrinsic_name}"
    return cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector] * 3), name
    )


def _half(builder: Any, vector: Any, row: Any, half: int) -> Any:
    """Where 8 of a row's 16 numbers lie."""
    return builder.bitcast(builder.gep(row, [_I64(_WIDE * half)]), vector.as_pointer())


def _load(builder: Any, vector: Any, row: Any, half: int) -> Any:
    loaded = builder.load(_half(builder, vector, row, half))
    loaded.align = 4
    return loaded


def _spread(builder: Any, vector: Any, number: Any) -> Any:
    """The same number 8 times."""
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, number, _I32(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_I32, _WIDE), [0] * 8))


@compiled
def six_from(begin: Any, step: Any) -> Any:
    """Where 6 rows begin that lie at the same distance."""
    return (
        begin,
        begin + step,
        begin + 2 * step,
        begin + 3 * step,
        begin + 4 * step,
        begin + 5 * step,
    )


@compiled
def six_of(places: Any, index: Any, begin: Any) -> Any:
    """Where 6 rows begin, from one of a list on; beyond its end, the last one again."""
    last = places.size - 1
    return (
        begin + places[index],
        begin + places[min(index + 1, last)],
        begin + places[min(index + 2, last)],
        begin + places[min(index + 3, last)],
        begin + places[min(index + 4, last)],
        begin + places[min(index + 5, last)],
    )
