"""With --pdb a replay stops inside the target, and can be left."""

from __future__ import annotations

import subprocess
import sys

from subject_checks import WRONG

OF_A_FUNCTION = "qkv-N1-L5-S5-H3-D2-unbatched-float64-s0"
OF_A_LAYER = "mha-N2-L5-S7-H3-D4-cross-padding-floatmask3d-float32-peaky-s1234"


def debugged(commands: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Replay with the debugger, which reads these commands."""
    line = [sys.executable, "-m", "mha_parity", "replay", *arguments, "--pdb"]
    return subprocess.run(
        line, input=commands, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_debugger_stops_inside_the_target() -> None:
    """The first stop is the target's first line, with its arguments; then the replay goes on."""
    done = debugged("p n_heads, Q.shape\nc\n", OF_A_FUNCTION, WRONG)
    assert "wrong_scale.py(10)f()" in done.stdout
    assert "(3, (5, 6))" in done.stdout
    assert f"{WRONG} fails this case: output." in " ".join(done.stdout.split())
    assert 1 == done.returncode


def test_the_debugger_stops_inside_a_layer() -> None:
    """Of a layer it stops in the layer's own call, and neither in NumPy nor in our machinery."""
    done = debugged("p query.shape\nc\n", OF_A_LAYER)
    (first, *_) = [line for line in done.stdout.splitlines() if line.startswith("> ")]
    assert "mha_numpy" in first
    assert "(2, 5, 12)" in done.stdout
    assert 0 == done.returncode


def test_the_debugger_can_be_left() -> None:
    """Quitting the debugger ends the replay, as an interrupt does."""
    done = debugged("q\n", OF_A_FUNCTION, WRONG)
    assert (130, "mha-parity: interrupted\n") == (done.returncode, done.stderr)
