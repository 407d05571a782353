"""The output of a target is split by case, and of a flood the end is kept."""

from __future__ import annotations

from mha_parity.worker.output_capture import LINES, START, OutputPerCase, end_mark


class TestOutput:
    """Printed text is split by case."""

    def test_each_case_has_its_own_words(self) -> None:
        """Marks end the output of a case, in whatever pieces they arrive."""
        stream = (
            b"loading\n"
            + end_mark(START)
            + b"one\n"
            + end_mark(0)
            + end_mark(1)
            + b"th\x00ree\n"
            + end_mark(2)
        )
        for length in (1, 7, len(stream)):
            output = OutputPerCase()
            for start in range(0, len(stream), length):
                output.feed(stream[start : start + length])
            assert [
                "loading", "one", "", "th\x00ree",
            ] == [output.take(n).last for n in (START, 0, 1, 2)]  # fmt: skip
            assert not output.unfinished().size

    def test_an_unfinished_case_keeps_its_words(self) -> None:
        """What came after the last mark are the last words of a process that ended."""
        output = OutputPerCase()
        output.feed(b"before\n" + end_mark(0) + b"goodbye\n")
        assert "goodbye" == output.unfinished().last

    def test_of_a_flood_the_end_is_kept(self) -> None:
        """The size counts all bytes; the last lines are few."""
        output = OutputPerCase()
        for number in range(1000):
            output.feed(b"line %d\n" % number)
        output.feed(end_mark(0))
        said = output.take(0)
        assert said.size == sum(len(f"line {n}\n") for n in range(1000))
        assert said.last.splitlines() == [f"line {n}" for n in range(1000 - LINES, 1000)]

    def test_of_a_fatal_error_the_beginning_is_kept(self) -> None:
        """Python's report of a crash is read from its first line."""
        output = OutputPerCase()
        output.feed(b"hello\nFatal Python error: Aborted\n" + b"  frame\n" * 50)
        assert output.unfinished().last.startswith("Fatal Python error: Aborted\n  frame")

    def test_long_lines_are_cut(self) -> None:
        """A line of thousands of characters leaves room for the others."""
        output = OutputPerCase()
        output.feed(b"x" * 5000 + b"\nshort\n" + end_mark(0))
        first, last = output.take(0).last.splitlines()
        assert (163, "...", "short") == (len(first), first[-3:], last)

    def test_a_candidate_that_closes_its_output_is_heard_all_the_same(self) -> None:
        """Without marks nothing is attributed, and nothing fails."""
        assert not OutputPerCase().take(3).size
