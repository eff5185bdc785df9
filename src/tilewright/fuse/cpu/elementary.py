"""exp and tanh of a vector, without a library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.fuse.cpu.code import Function, Value


def exp(f: Function, x: Value) -> Value:
    """e to the x: 2^n times a polynomial on half a binade (Cephes' coefficients)."""
    x = f.at_most(f.at_least(x, -87.3), 88.3)
    # Adding and taking away 1.5 * 2^23 rounds to the nearest whole number.
    magic = f.constant(12582912.0)
    scaled = f.binary("fmul", x, f.constant(1.44269504088896341))
    n = f.binary("fsub", f.binary("fadd", scaled, magic), magic)
    r = f.fma(n, f.constant(-0.693359375), x)
    r = f.fma(n, f.constant(2.12194440e-4), r)
    p = f.constant(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        p = f.fma(p, r, f.constant(c))
    y = f.fma(f.binary("fmul", p, r), r, f.binary("fadd", r, f.constant(1)))
    bits = f.op(f"fptosi {f.vector} {n} to {f.whole}")
    raised = f.op(f"add {f.whole} {bits}, {f.whole_constant(127)}")
    exponent = f.op(f"shl {f.whole} {raised}, {f.whole_constant(23)}")
    return f.binary("fmul", y, f.op(f"bitcast {f.whole} {exponent} to {f.vector}"))


def tanh(f: Function, x: Value) -> Value:
    """A polynomial near zero (Cephes'), 1 - 2 / (exp(2|x|) + 1) with x's sign elsewhere."""
    bits = f.op(f"bitcast {f.vector} {x} to {f.whole}")
    mask, sign = f.whole_constant(0x7FFFFFFF), f.whole_constant(-0x80000000)
    size_bits = f.op(f"and {f.whole} {bits}, {mask}")
    size = f.op(f"bitcast {f.whole} {size_bits} to {f.vector}")
    square = f.binary("fmul", x, x)
    p = f.constant(-5.70498872745e-3)
    for c in (2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1):
        p = f.fma(p, square, f.constant(c))
    near = f.fma(f.binary("fmul", p, square), x, x)
    e = exp(f, f.binary("fadd", size, size))
    down = f.binary("fadd", e, f.constant(1))
    fraction = f.binary("fdiv", f.constant(2), down)
    far = f.binary("fsub", f.constant(1), fraction)
    far_bits = f.op(f"bitcast {f.vector} {far} to {f.whole}")
    signs = f.op(f"and {f.whole} {bits}, {sign}")
    signed = f.op(f"or {f.whole} {far_bits}, {signs}")
    far = f.op(f"bitcast {f.whole} {signed} to {f.vector}")
    small = f.op(f"fcmp olt {f.vector} {size}, {f.constant(0.625)}")
    return f.select(small, near, far)
