"""The error that is a user's mistake, and none of the harness's own."""

from __future__ import annotations


class UsageError(ValueError):
    """A request that cannot be fulfilled; one sentence: got, should be, remedy.

    Commands print it without a traceback and end with status 2. Any other exception, a plain
    ``ValueError`` from NumPy too, is a mistake of the harness's own, which they say it is.
    """
