"""From an exception of a target to one sentence and the target's own last frames."""

from __future__ import annotations

import re
import traceback

from mha_parity.core.candidate import NOT_ASKED, CandidateError
from mha_parity.targets.backends import lacked_by_compiler
from mha_parity.targets.calls.error_origin import is_harness, raised_in
from mha_parity.targets.loading.definitions import explain_name_error
from mha_parity.targets.loading.skipped_statements import KEPT_BY, LeftOut

DEPTH = 4  # frames of the candidate that a report shows
# NumPy's einsum takes bfloat16 as far as it can make matrix products of it: by the sizes.
NO_EINSUM = "invalid data type for einsum"
# Keras says where an exception came from, and in bold letters what it said.
OF_KERAS = re.compile(r"Exception encountered when calling .*?\x1b\[1m(.*?)\x1b\[0m", re.DOTALL)
EINSUM_LACKS = "NumPy's einsum does not take the dtype at these sizes"


def crash(error: BaseException, *, bfloat16: bool = False) -> CandidateError:
    """Return the report of an exception: a sentence, and the candidate's own last frames.

    ``bfloat16``: the call was made with arrays of it, which are not all that NumPy's einsum takes.
    """
    text = _message(error).strip().splitlines()
    if bfloat16 and text == [NO_EINSUM]:
        return CandidateError("inconclusive", f"{NOT_ASKED}: {EINSUM_LACKS}")
    if lacks := lacked_by_compiler(error):
        return CandidateError("inconclusive", f"{NOT_ASKED}: {lacks}")
    # A first line that ends in a colon says nothing without the next.
    first = " ".join(line.strip() for line in text[: 1 + text[0].endswith(":")]) if text else ""
    said = f": {first}" if first else ""
    verb = "tried to leave by" if isinstance(error, SystemExit) else "raised"
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_harness(frame.f_code.co_filename)
    ]
    places = [(frame.f_code.co_filename, line) for frame, line in frames]
    own = [each for each in places if "site-packages" not in each[0]] or places
    place = f" [{own[-1][0]}:{own[-1][1]}]" if own else ""
    # Of the frames that are shown alone: thousands of trials raise, and sources are read for each.
    detail = "".join(traceback.StackSummary.extract(frames[-DEPTH:]).format())
    crashed = CandidateError("crash", f"{verb} {type(error).__name__}{said}{place}", detail)
    crashed.raised_in = raised_in(error)
    return crashed


def _message(error: BaseException) -> str:
    """Return the text of an exception; of a missing name, also what a notebook left out."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    left_out = trace.tb_frame.f_globals.get(KEPT_BY) if trace is not None else None
    if isinstance(error, NameError) and isinstance(left_out, LeftOut):
        return explain_name_error(error, left_out.names)
    try:
        said = str(error)
        inner = OF_KERAS.match(said)
        return inner[1] if inner else said
    except Exception:  # noqa: BLE001  (whatever the target's exception raises when it is printed)
        return ""
