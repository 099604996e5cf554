"""What sixteen rows add to the columns of a one-hot group when they are transformed: a sum for each code that they have.

The transform of a column that has some ones among sixteen rows is a sum of their coefficients, with signs. The bits are
those of a dense column, which adds zeros besides, when sums are made in the same order: neighbours, pairs, fours, eights. So
the sums of every choice of four neighbours are made first, sixteen choices for each of four fours, and each code looks up
its four. Two of the instructions have names of AVX-512 alone; processors without it transform dense columns.
"""

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fedns.numerics.cpu.emit import DOUBLES, LANES, address, fused, moved, row_part

ROWS = 16  # that are transformed together
TOGETHER = 64  # rows whose codes are compared before any are added: few loops, whose ends no processor foresees
QUADS = 4 * 16 * 4  # numbers for sixteen rows: four fours, sixteen choices, four outputs

_INDEX, _NUMBER = ir.IntType(64), ir.IntType(32)
_FOUR = ir.VectorType(ir.DoubleType(), 4)
_WORDS = ir.VectorType(_INDEX, LANES)


@cache
def available() -> bool:
    """Whether kernels are compiled for a processor that has the instructions."""
    features: str = cpu_target.target_context.codegen().magic_tuple()[2]
    return all(f"+{name}" in features.split(",") for name in ("avx512f", "avx512bw", "avx512cd", "avx512vbmi2"))


def _bytes(count: int) -> ir.VectorType:
    return ir.VectorType(ir.IntType(8), count)


def _places(*places: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_NUMBER, len(places)), list(places))


def _word(value: int) -> ir.Constant:
    return ir.Constant(_INDEX, value)


def _load(builder: Any, pointer: Any, kind: Any, align: int) -> Any:
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=align)


def _function(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic(prefer_literal=True)
def codes_by_group(typing_context, codes, first, by_group, row, stride, groups):
    """by_group[g stride + row], ... = the codes of group g of sixteen rows, which begin at codes[first]."""

    def generate(context, builder, signature, arguments):
        codes, first, by_group, row, stride, _ = arguments
        each = groups.literal_value
        every = _load(builder, address(context, builder, signature.args[0], codes, first), _bytes(ROWS * each), 1)
        for g in range(each):
            own = builder.shuffle_vector(every, every, _places(*range(g, ROWS * each, each)))
            pointer = address(context, builder, signature.args[2], by_group, moved(builder, row, g, stride))
            builder.store(own, builder.bitcast(pointer, _bytes(ROWS).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(codes, types.intp, by_group, types.intp, types.intp, groups), generate


@intrinsic
def sum_quads(typing_context, coefficients, first, quads, place):
    """quads[place : place + QUADS] = for each four of sixteen coefficients and each choice of them, as four bits, the first
    four outputs of the transform."""

    def generate(context, builder, signature, arguments):
        coefficients, first, quads, place = arguments
        zero = ir.Constant(_FOUR, [0.0] * 4)

        def outputs(row: int) -> Any:
            value = builder.load(address(context, builder, signature.args[0], coefficients, moved(builder, first, row, 1)))
            one = builder.insert_element(ir.Constant(_FOUR, ir.Undefined), value, ir.Constant(_NUMBER, 0))
            every = builder.shuffle_vector(one, one, _places(0, 0, 0, 0))
            signs = [(output & row).bit_count() % 2 for output in range(4)]
            return builder.shuffle_vector(every, builder.fneg(every), _places(*(i + 4 * s for i, s in enumerate(signs))))

        for q in range(4):
            a, b, c, d = (outputs(4 * q + i) for i in range(4))
            lows, highs = (zero, a, b, builder.fadd(a, b)), (zero, c, d, builder.fadd(c, d))
            for choice in range(1, 16):  # those of no rows stay zeros
                low, high = lows[choice & 3], highs[choice >> 2]
                entry = low if choice < 4 else high if choice & 3 == 0 else builder.fadd(low, high)
                pointer = address(context, builder, signature.args[2], quads, moved(builder, place, 16 * q + choice, 4))
                builder.store(entry, builder.bitcast(pointer, _FOUR.as_pointer()), align=32)
        return context.get_dummy_value()

    return types.void(coefficients, types.intp, quads, types.intp), generate


@intrinsic
def first_rows(typing_context, codes, first, count, rows):
    """rows[0], rows[1], ... = those of `count` rows, at most TOGETHER, that are the first of their sixteen with their code;
    returns how many they are. Up to TOGETHER codes are read."""

    def generate(context, builder, signature, arguments):
        codes, first, count, rows = arguments
        lanes, found = ir.VectorType(_NUMBER, ROWS), _word(0)
        conflict = _function(builder, "llvm.x86.avx512.conflict.d.512", lanes, lanes)
        for part in range(TOGETHER // ROWS):
            pointer = address(context, builder, signature.args[0], codes, moved(builder, first, part, ROWS))
            earlier = builder.call(conflict, [builder.zext(_load(builder, pointer, _bytes(ROWS), 1), lanes)])
            alone = builder.bitcast(builder.icmp_unsigned("==", earlier, ir.Constant(lanes, [0] * ROWS)), ir.IntType(ROWS))
            found = builder.or_(found, builder.shl(builder.zext(alone, _INDEX), _word(ROWS * part)))
        found = builder.and_(found, builder.lshr(_word(-1), builder.sub(_word(TOGETHER), count)))
        every, flags = _bytes(TOGETHER), ir.VectorType(ir.IntType(1), TOGETHER)
        compress = _function(builder, f"llvm.experimental.vector.compress.v{TOGETHER}i8", every, every, flags, every)
        numbers = [
            ir.Constant(every, list(range(TOGETHER))),
            builder.bitcast(found, flags),
            ir.Constant(every, ir.Undefined),
        ]
        pointer = address(context, builder, signature.args[3], rows, _word(0))
        builder.store(builder.call(compress, numbers), builder.bitcast(pointer, every.as_pointer()), align=1)
        return builder.call(_function(builder, "llvm.ctpop.i64", _INDEX, _INDEX), [found])

    return types.intp(codes, types.intp, types.intp, rows), generate


@intrinsic
def add_by_code(typing_context, codes, first, rows, found, quads, order, signs, block, cells, start, shape):
    """For each of `found` rows and the others of its sixteen with the same code, the outputs of the transform are added to
    the code's cell.

    A cell has as many vectors as `shape` items; lane r is output order[r], times signs[block + r] of the first sixteen rows,
    which the signs of the next sixteen follow.
    """

    def generate(context, builder, signature, arguments):
        codes, first, rows, found, quads, order, signs, block, cells, start, _ = arguments
        kinds, lanes = signature.args, _word(LANES * shape.count)
        permute = _function(builder, "llvm.x86.avx512.vpermi2var.pd.512", DOUBLES, DOUBLES, _WORDS, DOUBLES)
        orders = [
            _load(builder, address(context, builder, kinds[5], order, _word(LANES * v)), _WORDS, 8)
            for v in range(shape.count)
        ]
        with cgutils.for_range(builder, found, intp=_INDEX) as loop:
            row = builder.zext(builder.load(address(context, builder, kinds[2], rows, loop.index)), _INDEX)
            part = builder.lshr(row, _word(4))
            pointer = address(context, builder, kinds[0], codes, moved(builder, first, ROWS, part))
            every = _load(builder, pointer, _bytes(ROWS), 1)
            code = builder.load(address(context, builder, kinds[0], codes, builder.add(first, row)))
            one = builder.insert_element(ir.Constant(_bytes(ROWS), ir.Undefined), code, ir.Constant(_NUMBER, 0))
            same = builder.icmp_unsigned("==", every, builder.shuffle_vector(one, one, _places(*[0] * ROWS)))
            choices, sums = builder.zext(builder.bitcast(same, ir.IntType(ROWS)), _INDEX), []
            for q in range(4):
                choice = builder.and_(builder.lshr(choices, _word(4 * q)), _word(15))
                place = moved(builder, moved(builder, _word(64 * q), QUADS, part), 4, choice)
                sums.append(_load(builder, address(context, builder, kinds[4], quads, place), _FOUR, 32))
            a, b, c, d = sums
            low = builder.shuffle_vector(builder.fadd(a, b), builder.fsub(a, b), _places(*range(LANES)))
            high = builder.shuffle_vector(builder.fadd(c, d), builder.fsub(c, d), _places(*range(LANES)))
            first_eight, last_eight = builder.fadd(low, high), builder.fsub(low, high)
            cell = builder.add(start, builder.mul(builder.zext(code, _INDEX), lanes))
            for v in range(shape.count):
                entry = builder.call(permute, [first_eight, orders[v], last_eight])
                sign = row_part(context, builder, kinds[6], signs, builder.add(block, builder.mul(part, lanes)), v, None)
                pointer = address(context, builder, kinds[8], cells, moved(builder, cell, v))
                pointer = builder.bitcast(pointer, DOUBLES.as_pointer())
                builder.store(fused(builder, entry, sign, builder.load(pointer, align=64)), pointer, align=64)
        return context.get_dummy_value()

    place = types.intp
    return types.void(codes, place, rows, place, quads, order, signs, place, cells, place, shape), generate


@intrinsic
def add_slopes(typing_context, codes, first, slopes, row, even, odd, start):
    """The slopes of sixteen rows are added to the cells of their codes: one by one those of even rows, and then the sum of
    those of odd ones, as `simd.combine` adds them."""

    def generate(context, builder, signature, arguments):
        first, row, start, cells = arguments[1], arguments[3], arguments[6], []

        def at(array: int, index: Any) -> Any:
            return address(context, builder, signature.args[array], arguments[array], index)

        for i in range(ROWS):
            cells.append(builder.add(start, builder.zext(builder.load(at(0, moved(builder, first, i, 1))), _INDEX)))
            pointer = at(4 + i % 2, cells[-1])
            slope = builder.load(at(2, moved(builder, row, i, 1)))
            builder.store(builder.fadd(builder.load(pointer), slope), pointer)
        for cell in cells[1::2]:
            pointer, other = at(4, cell), at(5, cell)
            builder.store(builder.fadd(builder.load(pointer), builder.load(other)), pointer)
            builder.store(ir.Constant(ir.DoubleType(), 0.0), other)  # the same code may come again
        return context.get_dummy_value()

    place = types.intp
    return types.void(codes, place, slopes, place, even, odd, place), generate
