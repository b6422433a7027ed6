"""Describe how a kernel loads the keys of neighbouring elements. The statements are in shaders/scan/key_heads.wgsl."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from gpuscan.codegen.load_store import vector_type
from gpuscan.elements import Scalar
from gpuscan.planning.kernel import Kernel


@dataclass(frozen=True)
class KeyAccess:
    """Plain values about the array of keys, for the templates.

    Attributes:
        scalar: the kind of a key.
        count: the keys of neighbours that are compared together: those of a chunk, at most 32.
        width: the 32-bit words of one access.
        accesses: the accesses that cover these keys; 0 if each key is loaded by itself.
    """

    scalar: Scalar
    count: int
    width: int
    accesses: int

    @property
    def vector(self) -> str:
        """The WGSL type of one access."""
        return vector_type(self.width)

    @property
    def words(self) -> list[str]:
        """The expressions of the words in vectors that are called ``keys0``, ``keys1``, …"""
        vectors = [f"keys{i}" for i in range(self.accesses)]
        return [f"{v}.{c}" for v in vectors for c in "xyzw"[: self.width]] if self.width > 1 else vectors

    def first(self, index: str) -> str:
        """Return the expression of the access that begins with an element, which begins a chunk."""
        bits, access = self.scalar.bits, 32 * self.width
        return f"{index} * {bits // access}u" if bits >= access else f"{index} / {access // bits}u"


def key_access(kernel: Kernel) -> KeyAccess | None:
    """Return how the kernel loads keys; None if it compares none."""
    scalar, count = kernel.spec.key, min(32, kernel.tile.chunk)
    if scalar is None:
        return None
    # Columns are compared one by one, and so are chunks that are read backwards, since they may begin within a vector.
    apart = kernel.in_columns or kernel.spec.reverse or count * scalar.bits % 32
    if apart:
        return KeyAccess(scalar, count, 2 if kernel.in_columns and scalar.bits == 64 else 1, 0)
    words = count * scalar.bits // 32
    width = gcd(words, 4)
    return KeyAccess(scalar, count, width, words // width)
