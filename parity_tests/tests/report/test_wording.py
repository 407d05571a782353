"""What a target printed or raised, as a report shows it: short, and without escape codes."""

from __future__ import annotations

from pathlib import Path

from mha_parity.report import terminal, wording


def test_a_crash_shows_the_frames_of_the_target() -> None:
    """Of a fatal error's stacks only what the target did is shown, files named in short."""
    harness = Path(terminal.__file__).parents[1]
    here = Path.cwd()
    detail = f"""ended its process by signal SIGSEGV
Fatal Python error: Segmentation fault

Thread 0x00007fbadcb7d6c0 (most recent call first):
  File "{harness}/worker.py", line 141 in wait
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fbadd841b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{here}/theirs/kernel.py", line 34 in attend
  File "{harness}/conventions/base.py", line 82 in make"""
    assert [
        "ended its process by signal SIGSEGV",
        "Fatal Python error: Segmentation fault",
        '  File "ctypes/__init__.py", line 519 in string_at',
        '  File "theirs/kernel.py", line 34 in attend',
    ] == wording.shorten_output(detail, 8).splitlines()


def test_long_last_words_are_cut_and_cleaned() -> None:
    """Of 100 lines the first and the last are shown, without escape codes and marks of place."""
    detail = "\n".join(["raised \x1b[31mError", "    ^^^^~~", *(f"line {i}" for i in range(100))])
    told = wording.shorten_output(detail, 5).splitlines()
    assert [
        "raised [31mError",
        "  ... 96 lines ...",
        "line 96",
        "line 97",
        "line 98",
        "line 99",
    ] == told
