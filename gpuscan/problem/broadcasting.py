"""Broadcast shapes, and sum what belongs to the copies of an array that was broadcast, such as their gradients."""

from __future__ import annotations

from numpy.typing import DTypeLike

from gpuscan.array_types import AnyArray


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that all shapes broadcast to, as `np.broadcast_shapes` does.

    Raises:
        ValueError: there is none.
    """
    lengths = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        length = 1
        for shape in shapes:
            own = shape[axis] if len(shape) >= -axis else 1
            if own != 1 and length not in (1, own):
                raise ValueError(f"the shapes {shapes} do not broadcast to one shape")
            length = length if own == 1 else own
        lengths.append(length)
    return tuple(lengths)


def find_repeated_axes(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of `whole` along which an array of `shape` is repeated when it is broadcast to that.

    Example:
        >>> find_repeated_axes((3, 1), (2, 3, 4))
        (0, 2)
    """
    lead = len(whole) - len(shape)
    return tuple(i for i in range(len(whole)) if i < lead or shape[i - lead] == 1 != whole[i])


def sum_to_shape(shape: tuple[int, ...], array: AnyArray, dtype: DTypeLike | None = None) -> AnyArray:
    """Return the sum over the copies of an array of `shape` that was broadcast to the shape of `array`.

    Args:
        shape: the shape of the result.
        array: a value for each copy.
        dtype: what to sum in, where there are several copies (default: the dtype of `array`).
    """
    axes = find_repeated_axes(shape, array.shape)
    if axes:
        array = array.sum(axis=axes, dtype=array.dtype if dtype is None else dtype)
    return array.reshape(shape)
