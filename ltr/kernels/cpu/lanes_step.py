"""One step of the nodes' states in all lanes, written for LLVM.

numba's loops over lanes would write the power of the decay and the sum to memory at every node.
Here both stay in registers, for one vector of lanes at a time.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

WIDTH = 8
"""The number of lanes is a multiple of this: one vector, or two where vectors are shorter."""

VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)


class _Lanes:
    """Access to arrays of doubles whose last axis is the lanes, with vector arithmetic."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any):
        pairs = zip(kinds, values, strict=True)
        self.builder = builder
        self.arrays = [context.make_array(kind)(context, builder, value) for kind, value in pairs]
        self.shapes = [cgutils.unpack_tuple(builder, array.shape) for array in self.arrays]

    def offset(self, array: int, *index: Any) -> Any:
        """Return the number of entries before array[index]."""
        total = index[0]
        for size, k in zip(self.shapes[array][1:], index[1:], strict=True):
            total = self.builder.add(self.builder.mul(total, size), k)
        return total

    def place(self, array: int, *index: Any) -> Any:
        """Return a pointer to the vector that begins at array[index]."""
        data = self.arrays[array].data
        begin = self.builder.gep(data, [self.offset(array, *index)])
        return self.builder.bitcast(begin, VECTOR.as_pointer())

    def load(self, array: int, *index: Any) -> Any:
        return self.builder.load(self.place(array, *index), align=8)

    def store(self, value: Any, array: int, *index: Any) -> None:
        self.builder.store(value, self.place(array, *index), align=8)

    def number(self, array: int, *index: Any) -> Any:
        """Return the single number array[index] in all lanes."""
        builder, zero = self.builder, ir.Constant(ir.IntType(32), 0)
        number = builder.load(builder.gep(self.arrays[array].data, [self.offset(array, *index)]))
        none = ir.Constant(VECTOR, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(builder.insert_element(none, number, zero), none, zeros)

    def plus(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=("contract",))

    def minus(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=("contract",))

    def times(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=("contract",))


def _step(is_complex: bool, with_result: bool) -> Any:
    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        at = _Lanes(context, builder, signature.args[:5], given[:5])
        side, c, p, came, between, o, width, count = cgutils.unpack_tuple(builder, given[5], 8)
        plus, minus, times = at.plus, at.minus, at.times

        def whole(k: int) -> Any:
            return ir.Constant(count.type, k)

        def variable(start: Any) -> Any:
            return cgutils.alloca_once_value(builder, start)

        every = whole(0), width, whole(WIDTH)
        # allocate before the loop, or the stack would grow
        x_now, y_now, total = (cgutils.alloca_once(builder, VECTOR) for _ in range(3))
        with cgutils.for_range_slice(builder, *every) as (lane, _):
            arrived = at.load(2, c, came, lane)
            a, *more = (at.load(1, whole(k), between, lane) for k in range(4 if is_complex else 1))
            builder.store(a, x_now)
            if is_complex:
                builder.store(more[0], y_now)
            if with_result:
                builder.store(at.load(3, p, o, lane), total)
            with cgutils.for_range(builder, count) as node:
                place = builder.add(node.index, whole(3))
                x, re = builder.load(x_now), plus(at.load(0, c, place, lane), arrived)
                now, turned = times(x, re), None
                if is_complex:
                    behind = builder.add(place, count)
                    y, im = builder.load(y_now), at.load(0, c, behind, lane)
                    now, turned = minus(now, times(y, im)), plus(times(x, im), times(y, re))
                    at.store(turned, 0, c, behind, lane)
                    builder.store(minus(times(x, more[1]), times(y, more[2])), x_now)
                    builder.store(plus(times(x, more[2]), times(y, more[1])), y_now)
                else:
                    builder.store(times(x, a), x_now)
                at.store(now, 0, c, place, lane)
                if with_result:
                    weight = builder.add(node.index, whole(4))
                    found = plus(builder.load(total), times(at.number(4, side, o, weight), now))
                    if turned is not None:
                        weight = at.number(4, side, o, builder.add(weight, count))
                        found = plus(found, times(weight, turned))
                    builder.store(found, total)
            if with_result:
                at.store(builder.load(total), 3, p, o, lane)
        return context.get_dummy_value()

    def typed(
        typing: Any, state: Any, decays: Any, values: Any, result: Any, weights: Any, places: Any
    ) -> Any:
        arrays = state, decays, values, result, weights
        return types.void(*arrays, types.UniTuple(types.int64, 8)), generate

    return intrinsic(typed)


# places: side, c, p, came, between, o, width, count. In the first `width` lanes, state[c, 3:]
# becomes (the state + values[c, came]) times the powers of the decays at `between`; then
# result[p, o] += weights[side, o, 4:] times the new state.
real_step, real_step_alone = _step(False, True), _step(False, False)
complex_step, complex_step_alone = _step(True, True), _step(True, False)


def _add_states(typing: Any, state: Any, result: Any, weights: Any, places: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        at = _Lanes(context, builder, signature.args[:3], given[:3])
        side, c, p, o, width, count = cgutils.unpack_tuple(builder, given[3], 6)

        def whole(k: int) -> Any:
            return ir.Constant(count.type, k)

        total = cgutils.alloca_once(builder, VECTOR)
        with cgutils.for_range_slice(builder, whole(0), width, whole(WIDTH)) as (lane, _):
            builder.store(at.load(1, p, o, lane), total)
            with cgutils.for_range(builder, count) as node:
                now = at.load(0, c, builder.add(node.index, whole(3)), lane)
                weight = at.number(2, side, o, builder.add(node.index, whole(4)))
                builder.store(at.plus(builder.load(total), at.times(weight, now)), total)
            at.store(builder.load(total), 1, p, o, lane)
        return context.get_dummy_value()

    return types.void(state, result, weights, types.UniTuple(types.int64, 6)), generate


# places: side, c, p, o, width, count. For further outputs, result[p, o] += weights[side, o, 4:]
# times the first `count` of state[c, 3:].
add_states: Any = intrinsic(_add_states)
