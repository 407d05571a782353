"""Lines of an adapter are broken at the brackets that end them."""

from __future__ import annotations

import ast

import pytest

from mha_parity.targets.adapters.code_lines import WIDTH, wrapped

NAMES = [f"call.argument_{i}" for i in range(9)]
LONG = {
    "one line within": f"layer = MultiHeadAttention({', '.join(NAMES[:4])})",
    "a line for each": f"layer = Target({', '.join(NAMES)})",
    "a comprehension": f"heads = [{' + '.join(NAMES[:3])} for head in range(call.num_heads)]",
    "brackets in brackets": f"x = f(g({', '.join(NAMES)}), {{'k': ({', '.join(NAMES)})}})",
}


@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_long_lines_are_broken_and_mean_the_same(line: str) -> None:
    """No line is longer than allowed, and Python reads what it read."""
    found = wrapped(line)
    assert len(line) > WIDTH >= max(map(len, found.splitlines()))
    assert ast.dump(ast.parse(line)) == ast.dump(ast.parse(found))


def test_other_lines_stay() -> None:
    """One that is short, and one that ends in no brackets, are returned."""
    for line in ("f(x)", f"a = f(x) + {' + '.join(NAMES)}"):
        assert line == wrapped(line)


def test_the_indent_is_kept() -> None:
    """What is within is four blanks deeper."""
    call = f"    result = attend_to_all({', '.join(NAMES[:4])})"
    assert len(call) > WIDTH
    within = f"        {', '.join(NAMES[:4])}"
    assert ["    result = attend_to_all(", within, "    )"] == wrapped(call).splitlines()
