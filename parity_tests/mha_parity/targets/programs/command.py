"""A program of any language as a target: asked over its standard input and output.

Each message is its length (u64, little-endian) and a safetensors block. The documentation's page
on the protocol has the whole of it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shlex
import signal
import subprocess
from typing import IO, TYPE_CHECKING, NoReturn

from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.features import make_offer
from mha_parity.core.safetensors import LENGTH, FormatError, dump, load_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer

EXEC = "exec:"
PROTOCOL = "mha-parity-exec/1"
LARGEST = 1 << 32  # bytes of an answer: what is longer is garbage read as a length
NO_LENGTH = "begins with {!r}, which is no length: print to standard error what is no answer"
CLOSED = 1.0  # seconds for a program to end that has closed its output
FIXED = ("layout", "memory")  # the axes on which the blocks leave no choice


class Command:
    """A program, started once, that answers one request after the other."""

    def __init__(self, text: str) -> None:
        """Start the program and ask it for what it offers.

        Raises
        ------
        TargetError
            There is no such program, or it does not say what it offers.

        """
        self.__name__ = self.__qualname__ = text
        self._popen: subprocess.Popen[bytes] | None = None
        try:
            self._words = shlex.split(text) or [""]
            _, said = self._exchange({}, {"request": "offer"})
            self.offer = _offer(said)
        except (CandidateError, Ended, OSError, ValueError) as error:
            self._stop()
            raise TargetError(_refused(text, error)) from None

    def __call__(self, arrays: Mapping[str, Array], options: Mapping[str, str]) -> dict[str, Array]:
        """Return the arrays that the program answers.

        Where it ends, this process ends likewise: the run counts both as the target's crash.

        Raises
        ------
        CandidateError
            It answers with an error, or with what is no answer; it is then started anew.

        """
        try:
            answered, _ = self._exchange(arrays, _asked(options))
        except Ended as end:
            _end_likewise(end.status)
        return answered

    def request(self, arrays: Mapping[str, Array], options: Mapping[str, str]) -> bytes:
        """Return the block that a call sends."""
        return dump(arrays, {"protocol": PROTOCOL, **_asked(options)})

    def _exchange(
        self, arrays: Mapping[str, Array], metadata: Mapping[str, str]
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Send a request and return arrays and metadata of the answer."""
        try:
            found, said = load_tensors(
                self._answer(dump(arrays, {"protocol": PROTOCOL, **metadata}))
            )
            _same_protocol(said)
        except FormatError as error:
            self._stop()  # where its next answer would begin is not known
            raise CandidateError("structure", f"the block that it answered {error}.") from None
        if "error" in said:
            raise CandidateError("crash", f"answered the error {said['error']!r}")
        return found, said

    def _answer(self, block: bytes) -> bytes:
        """Return the block that comes back."""
        if self._popen is None:
            self._popen = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        to, back = self._popen.stdin, self._popen.stdout
        assert to is not None  # noqa: S101  (a pipe was asked for above)
        assert back is not None  # noqa: S101  (as above)
        with contextlib.suppress(BrokenPipeError):  # then there is nothing to read, either
            to.write(LENGTH.pack(len(block)) + block)
            to.flush()
        begin = self._read(back, LENGTH.size)
        (length,) = LENGTH.unpack(begin)
        if length > LARGEST:
            raise FormatError(NO_LENGTH.format(begin))
        return self._read(back, length)

    def _read(self, back: IO[bytes], count: int) -> bytes:
        piece = back.read(count)
        if len(piece) == count:
            return piece
        assert self._popen is not None  # noqa: S101  (it was asked)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(CLOSED)
        status = self._popen.poll()
        self._stop()
        raise Ended(status)

    def _stop(self) -> None:
        """End the program; the next request starts it anew."""
        if self._popen is None:
            return
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            with contextlib.suppress(BrokenPipeError):  # what was written last was not read
                if stream is not None:
                    stream.close()
        self._popen = None


def _asked(options: Mapping[str, str]) -> dict[str, str]:
    return {"request": "attention", **options}


class Ended(Exception):  # noqa: N818  (an event)
    """The program ended; None for the status: it closed its output alone."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"it ended with status {status} before it answered")
        self.status = status


def _same_protocol(said: Mapping[str, str]) -> None:
    if said.get("protocol") != PROTOCOL:
        given = said.get("protocol")
        raise FormatError(f"has the protocol {given!r}, but should have {PROTOCOL!r}")


def _end_likewise(status: int | None) -> NoReturn:
    """End this process as the program ended."""
    faulthandler.disable()  # its report would be on this process
    if status is not None and status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(1 if status is None else status)


def _offer(said: Mapping[str, str]) -> Offer:
    """Return what the metadata of an answer offers; the plain value where it names no axis."""
    given = {axis: words.split(",") for axis, words in said.items() if axis != "protocol"}
    for axis in FIXED:
        if axis in given:
            raise ValueError(f"it names {axis}, which the protocol leaves no choice of")
    if given.get("form") == ["qkv"]:
        given["projection"] = ["none"]
    return make_offer(**{"memory": "c", **given})


def _refused(text: str, error: Exception) -> str:
    said = f"{error.strerror}" if isinstance(error, OSError) else str(error)
    return (
        f"got the command {text!r}, but {said.rstrip('.')}; it should start, and answer the "
        f"request `offer` of the protocol {PROTOCOL}."
    )
