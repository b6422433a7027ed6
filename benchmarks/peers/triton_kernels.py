"""Triton kernels for scans and linear recurrences; Triton compiles functions from their source, so they stand alone."""
# mypy: ignore-errors

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def add(left, right):
        return left + right

    @triton.jit
    def compose(left_a, left_b, right_a, right_b):
        return right_a * left_a, right_a * left_b + right_b

    @triton.jit
    def row_sums(x, y, LENGTH: tl.constexpr, WIDTH: tl.constexpr):  # noqa: N803
        """Scan a whole row in one program."""
        at = tl.arange(0, WIDTH)
        start = tl.program_id(0).to(tl.int64) * LENGTH
        values = tl.load(x + start + at, mask=at < LENGTH, other=0)
        tl.store(y + start + at, tl.associative_scan(values, 0, add), mask=at < LENGTH)

    @triton.jit
    def row_recurrence(a, b, h, LENGTH: tl.constexpr, WIDTH: tl.constexpr):  # noqa: N803
        """Compute the recurrence of a whole row in one program, in 32 bits."""
        at = tl.arange(0, WIDTH)
        start = tl.program_id(0).to(tl.int64) * LENGTH
        factors = tl.load(a + start + at, mask=at < LENGTH, other=1).to(tl.float32)
        terms = tl.load(b + start + at, mask=at < LENGTH, other=0).to(tl.float32)
        _, result = tl.associative_scan((factors, terms), 0, compose)
        tl.store(h + start + at, result.to(h.dtype.element_ty), mask=at < LENGTH)

    @triton.jit
    def column_recurrence(a, b, h, length, channels, BLOCK: tl.constexpr):  # noqa: N803
        """Step along the sequence of BLOCK channels of one batch in one program."""
        channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = channel < channels
        start = tl.program_id(0).to(tl.int64) * length * channels
        carry = tl.zeros((BLOCK,), tl.float32)
        for t in range(length):
            at = start + t.to(tl.int64) * channels + channel
            factor = tl.load(a + at, mask=mask, other=0).to(tl.float32)
            term = tl.load(b + at, mask=mask, other=0).to(tl.float32)
            carry = factor * carry + term
            tl.store(h + at, carry.to(h.dtype.element_ty), mask=mask)
