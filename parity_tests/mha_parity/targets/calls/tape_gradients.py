"""Gradients of functions of TensorFlow's tensors, by ``tf.GradientTape``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class TapeGradients:
    """A function called under a tape: its result, and the gradients of what it is given.

    ``leaves`` are tensors among the arguments; ``given`` is the cotangent of the output, which
    ``output_of`` finds in the result.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leaves: Mapping[str, Any],
        given: Any,
        output_of: Callable[[Any], Any],
    ) -> None:
        self._function = function
        self._leaves = dict(leaves)
        self._given = given
        self._output_of = output_of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result, and keep the tape."""
        import tensorflow as tf

        with tf.GradientTape() as self._tape:
            self._tape.watch(list(self._leaves.values()))
            result = self._function(*args, **kwargs)
            self._output = self._output_of(result)
        return result

    def pulled(self, result: Any) -> dict[str, Any]:
        """Return the gradients by name; None of what the output does not depend on."""
        import tensorflow as tf

        del result
        given = tf.cast(tf.reshape(self._given, tf.shape(self._output)), self._output.dtype)
        return dict(self._tape.gradient(self._output, self._leaves, output_gradients=given))
