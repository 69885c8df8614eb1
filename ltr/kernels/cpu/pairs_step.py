"""One step of the states of graded pairs, written for LLVM, since numba's loops are too slow."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 4
"""The number of nodes in one vector instruction."""


@intrinsic
def advance(
    typing: Any, state: Any, came: Any, share: Any, fit: Any, e: Any, rows: Any, own: Any
) -> Any:
    """Advance all states, and return (sum of fit[0] * s, sum of fit[1] * s).

    state (blocks, most, LANES): state[:, own + c] += came[c], then all are multiplied by (e^1, e^2,
    ...), and s = sum over r < rows of share[r] * state[:, r].
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        vector, flags = ir.VectorType(ir.DoubleType(), LANES), ("contract",)
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:4], given[:4], strict=True)
        ]
        state, came, share, fit = (array.data for array in arrays)
        e, rows, own = given[4:]
        most = cgutils.unpack_tuple(builder, arrays[0].shape)[1]
        columns = cgutils.unpack_tuple(builder, arrays[1].shape)[0]
        blocks = cgutils.unpack_tuple(builder, arrays[3].shape)[1]
        lanes = ir.Constant(rows.type, LANES)

        def load(pointer: Any, index: Any) -> Any:
            return builder.load(place(pointer, index), align=8)

        def place(pointer: Any, index: Any) -> Any:  # of the vector with that number
            pointer = builder.gep(pointer, [builder.mul(index, lanes)])
            return builder.bitcast(pointer, vector.as_pointer())

        def splat(number: Any) -> Any:
            none = ir.Constant(vector, ir.Undefined)
            one = builder.insert_element(none, number, ir.Constant(ir.IntType(32), 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(one, none, zeros)

        def one_of(array: Any, index: Any) -> Any:
            return splat(builder.load(builder.gep(array, [index])))

        def variable(start: Any) -> Any:
            return cgutils.alloca_once_value(builder, start)

        def add(total: Any, a: Any, b: Any) -> None:
            product = builder.fmul(a, b, flags=flags)
            builder.store(builder.fadd(builder.load(total), product, flags=flags), total)

        powers, last = splat(e), e
        for lane in range(1, LANES):
            last = builder.fmul(last, e)
            powers = builder.insert_element(powers, last, ir.Constant(ir.IntType(32), lane))
        power, zero = variable(powers), ir.Constant(vector, [0.0] * LANES)
        smooth, falls = variable(zero), variable(zero)
        with cgutils.for_range(builder, blocks) as block:
            factors, first = builder.load(power), builder.mul(block.index, most)
            total = variable(zero)
            builder.store(zero, total)
            with cgutils.for_range(builder, columns) as column:
                number = builder.add(builder.add(first, own), column.index)
                now = builder.fadd(load(state, number), one_of(came, column.index))
                builder.store(now, place(state, number), align=8)
            with cgutils.for_range(builder, rows) as row:
                number = builder.add(first, row.index)
                now = builder.fmul(load(state, number), factors)
                builder.store(now, place(state, number), align=8)
                add(total, one_of(share, row.index), now)
            add(smooth, load(fit, block.index), builder.load(total))
            add(falls, load(fit, builder.add(block.index, blocks)), builder.load(total))
            builder.store(builder.fmul(factors, splat(last)), power)
        sums = []
        for total in (smooth, falls):
            parts = builder.load(total)
            lane = [
                builder.extract_element(parts, ir.Constant(ir.IntType(32), k)) for k in range(LANES)
            ]
            sums.append(
                builder.fadd(builder.fadd(lane[0], lane[1]), builder.fadd(lane[2], lane[3]))
            )
        return context.make_tuple(builder, signature.return_type, sums)

    two = types.UniTuple(types.float64, 2)
    return two(state, came, share, fit, e, rows, own), generate
