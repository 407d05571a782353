"""Tell an exception of the target from one of the harness, by the frames of its traceback."""

from __future__ import annotations

import inspect
import sys
import sysconfig
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import NOT_CALLED, CandidateError

if TYPE_CHECKING:
    from collections.abc import Iterator

HARNESS = f"{Path(__file__).resolve().parents[1]}/"
LIBRARIES = tuple(f"{sysconfig.get_paths()[key]}/" for key in ("stdlib", "platstdlib"))
INSTALLED = "site-packages"


# What a target refuses arguments by; anything else that it raises is a mistake in it.
REFUSES = (ValueError, AssertionError, NotImplementedError)


def is_refusal(said: str) -> bool:
    """Return whether a report of an exception is one of those that refuse arguments."""
    return said.startswith(tuple(f"raised {each.__name__}" for each in REFUSES))


def refuses(error: CandidateError) -> bool:
    """Return whether a target refuses a call, or is not asked it: no mistake of the target's."""
    return error.severity == "inconclusive" or isinstance(error.__context__, REFUSES)


def is_harness(filename: str) -> bool:
    """Return whether a frame's file belongs to the harness."""
    return filename.startswith(HARNESS)


def raised_in(error: BaseException) -> tuple[str, ...]:
    """Return the files of the frames behind the harness's last one, outermost first."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = max((i for i, name in enumerate(files) if is_harness(name)), default=-1)
    return tuple(files[last + 1 :])


@contextmanager
def attributed(subject: object) -> Iterator[None]:
    """Context: report the harness's exceptions as calls that could not be made.

    Raises
    ------
    CandidateError
        As it came where the subject raised; else inconclusive, since the harness did: it called
        the subject with arguments that it does not take, or failed before or behind the call.

    """
    try:
        yield
    except CandidateError as error:
        if error.raised_in is None or _has_frame(subject, error.raised_in):
            raise
        message = f"{NOT_CALLED}: {error}"
        raise CandidateError("inconclusive", message, error.detail) from None
    except Exception as error:  # noqa: BLE001  (whatever a mistake of the harness raises)
        raise CandidateError("inconclusive", harness_error(error)) from None


def raised_by(subject: object, error: BaseException) -> bool:
    """Return whether an exception came out of the subject's own code."""
    return _has_frame(subject, raised_in(error))


def harness_error(error: Exception) -> str:
    """Return the sentence on an exception that the harness itself raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error).partition("\n")[0]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{NOT_CALLED}: the harness raised {type(error).__name__}: {said} [{place}]"


def _has_frame(subject: object, files: tuple[str, ...]) -> bool:
    """Return whether one of the files is the subject's.

    What is not written in Python has no frames: its exceptions are its own.
    """
    if not _is_python(subject):
        return True
    module = getattr(subject, "__module__", None) or ""
    own = getattr(sys.modules.get(module), "__file__", None)  # a file is loaded by another name
    return any(name == own or _is_own(name, module.partition(".")[0]) for name in files)


def _is_python(subject: Any) -> bool:
    """Return whether calling the subject runs a frame of Python."""
    if isinstance(subject, type):
        return True
    try:
        called = inspect.unwrap(subject)
        return inspect.isfunction(called) or inspect.ismethod(called) or hasattr(subject, "forward")
    except Exception:  # noqa: BLE001  (whatever the target's __getattr__ raises)
        return True


def _is_own(filename: str, package: str) -> bool:
    """Return whether a file is of the subject's package, or of no library at all."""
    if INSTALLED in filename:
        return f"/{package}/" in filename.replace("\\", "/").partition(INSTALLED)[2]
    return not filename.startswith((*LIBRARIES, "<frozen", "<__array"))
