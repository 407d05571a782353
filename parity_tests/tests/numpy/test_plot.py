"""Heat maps: what stands in the picture, the simulated heads, and life without matplotlib."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from mha_numpy import plot

QUERY_TOKENS = ["le", "chat", "dort"]
KEY_TOKENS = ["the", "cat", "is", "asleep", "."]


def weights(heads: int = 2, queries: int = 3, keys: int = 5) -> np.ndarray[Any, Any]:
    """Return weights whose rows sum to 1, and of which no two are alike."""
    return np.random.default_rng(11).dirichlet(np.ones(keys), size=(heads, queries))


def panels(figure: Figure) -> list[Any]:
    """Return the axes that hold heat maps, without the colour bar."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def labels(axis: Any) -> list[str]:
    """Return the texts along an axis."""
    return [text.get_text() for text in axis.get_ticklabels()]


def test_each_head_has_a_panel_that_shows_its_weights() -> None:
    """Panels come in the order of the heads and hold exactly their weights."""
    expected = weights(heads=5)
    figure = plot.attention_heads(expected, columns=2)
    actual = np.stack([axes.images[0].get_array() for axes in panels(figure)])
    np.testing.assert_array_equal(actual, expected)
    assert [f"head {head}" for head in range(5)] == [axes.get_title() for axes in panels(figure)]


def test_tokens_label_both_axes() -> None:
    """Queries run down, keys run across; signs that mean mathematics elsewhere stay as they are."""
    tokens = ["$x$", "_", "Ġcat"]
    figure = plot.attention_heads(weights(keys=3), tokens)
    for axes in panels(figure):
        assert tokens == labels(axes.yaxis) == labels(axes.xaxis)


def test_keys_can_have_tokens_of_their_own() -> None:
    """In cross-attention the columns carry the key's tokens."""
    figure = plot.attention_heads(weights(), QUERY_TOKENS, key_tokens=KEY_TOKENS)
    for axes in panels(figure):
        assert (QUERY_TOKENS, KEY_TOKENS) == (labels(axes.yaxis), labels(axes.xaxis))


def test_all_panels_share_one_colour_scale_and_bar() -> None:
    """The scale runs from 0 to the largest weight of all heads, so that panels compare."""
    figure = plot.attention_heads(weights())
    limits = {axes.images[0].get_clim() for axes in panels(figure)}
    assert {(0.0, weights().max())} == limits
    assert len(figure.axes) == len(panels(figure)) + 1
    assert "attention weight" == figure.axes[-1].get_ylabel()


def test_one_head_and_lists_of_heads_are_taken() -> None:
    """(L, S) is one head; a list of (L, S), as `textbook.packed` returns, is several."""
    assert 1 == len(panels(plot.attention_heads(weights()[0])))
    assert 2 == len(panels(plot.attention_heads(list(weights()))))


def test_rows_without_a_visible_key_are_left_out() -> None:
    """NaN neither spoils the colour scale nor is drawn as a weight; nor is the input changed."""
    given_weights = weights()
    given_weights[1, 2] = np.nan
    kept = given_weights.copy()
    figure = plot.attention_heads(given_weights)
    assert np.nanmax(kept) == panels(figure)[0].images[0].get_clim()[1]
    assert panels(figure)[1].images[0].get_array().mask[2].all()
    np.testing.assert_array_equal(given_weights, kept)


def test_long_sequences_show_some_of_their_tokens() -> None:
    """130 labels would not be readable: every third is shown, at its own place."""
    tokens = [f"t{i}" for i in range(130)]
    (axes,) = panels(plot.attention_heads(np.full((130, 130), 1 / 130), tokens))
    assert tokens[::3] == labels(axes.xaxis)
    assert list(range(0, 130, 3)) == list(axes.get_xticks())


def png_size(path: Path) -> tuple[int, int]:
    """Return width and height that the header of a PNG file tells."""
    header = path.read_bytes()[:24]
    assert b"\x89PNG\r\n\x1a\n" == header[:8]
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_pictures_are_saved_without_a_display(tmp_path: Path) -> None:
    """A process that has no display saves a PNG, and pyplot with its windows is never loaded."""
    path = tmp_path / "heads.png"
    code = (
        "import sys; from mha_numpy import plot; "
        f"plot.specialised_heads(path={str(path)!r}); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env={})
    width, height = png_size(path)
    assert width > height > 500


def test_the_ending_of_the_path_chooses_the_format(tmp_path: Path) -> None:
    """A path that ends in .svg gets vectors."""
    path = tmp_path / "heads.svg"
    plot.attention_heads(weights(), path=path)
    assert "<svg" in path.read_text(encoding="utf-8")


def test_without_matplotlib_the_remedy_is_printed() -> None:
    """Importing and simulating need no matplotlib; drawing says what to install."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "from mha_numpy import plot\n"
        "assert len(plot.simulated_heads()) == 6\n"
        "try: plot.specialised_heads()\n"
        "except ImportError as error: print(error)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert (
        "matplotlib is not installed, but heat maps are drawn with it; "
        "run: pip install 'mha-parity[plot]'.\n"
    ) == printed.stdout


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "attention_heads(weights of a batch)": (
        lambda: plot.attention_heads(weights()[None]),
        r"`weights` have shape \(1, 2, 3, 5\), but should be \(H, L, S\), .*; pick one sample",
    ),
    "attention_heads(no keys)": (
        lambda: plot.attention_heads(np.empty((2, 3, 0))),
        r"`weights` have shape \(2, 3, 0\), .* no empty axis",
    ),
    "attention_heads(tokens of the keys)": (
        lambda: plot.attention_heads(weights(), KEY_TOKENS),
        r"`tokens` holds 5 labels, but should hold 3, one for each of the queries; ",
    ),
    "attention_heads(tokens for the queries alone)": (
        lambda: plot.attention_heads(weights(), QUERY_TOKENS),
        r"`key_tokens` holds 3 labels, but should hold 5, one for each of the keys; ",
    ),
    "attention_heads(three names for two heads)": (
        lambda: plot.attention_heads(weights(), names=["a", "b", "c"]),
        r"`names` holds 3 labels, but should hold 2, one for each of the heads; ",
    ),
    "attention_heads(columns=0)": (
        lambda: plot.attention_heads(weights(), columns=0),
        r"`columns` is 0, but should be at least 1; ",
    ),
    "simulated_heads([])": (
        lambda: plot.simulated_heads([]),
        r"`tokens` is empty, but should hold at least one token; ",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refused_arguments(call: str) -> None:
    """What cannot be drawn is refused in one sentence that names it."""
    refused, message = REFUSED[call]
    with pytest.raises(ValueError, match=message):
        refused()


NAMES = ["positional", "syntactic", "semantic", "beginning of sequence", "delimiter", "uniform"]


@given(st.lists(st.text(max_size=5), min_size=1, max_size=13))
def test_simulated_heads_are_weights(tokens: list[str]) -> None:
    """For any tokens: six heads in order, square, none negative, rows that sum to 1."""
    heads = plot.simulated_heads(tokens)
    assert list(heads) == NAMES
    for head in heads.values():
        assert head.shape == (len(tokens), len(tokens))
        assert (head >= 0).all()
        # Each sum is rounded once a term, and each quotient once.
        assert np.abs(head.sum(axis=-1) - 1).max() <= 2 * len(tokens) * np.finfo(float).eps


def test_links_tell_what_words_depend_on() -> None:
    """Links of one's own go from the query word to the key word; unknown words have no effect."""
    tokens = ["birds", "sing", "!"]
    syntax = {("sing", "birds"): 0.3, ("sing", "fish"): 9.0}
    heads = plot.simulated_heads(tokens, syntax=syntax, meaning={})
    np.testing.assert_array_equal(heads["syntactic"][1], np.array([0.3, 0.1, 0.0]) / (0.3 + 0.1))
    np.testing.assert_array_equal(heads["semantic"], np.eye(3))


def test_delimiters_are_tokens_without_letters_and_digits() -> None:
    """Commas and stops draw attention wherever they are, and the last token where there is none."""
    strongest = plot.simulated_heads(["yes", ",", "7", "!"])["delimiter"] > 0.3
    np.testing.assert_array_equal(strongest[0], [False, True, False, True])
    strongest = plot.simulated_heads(["yes", "no", "7"])["delimiter"] > 0.3
    np.testing.assert_array_equal(strongest[0], [False, False, True])


def test_the_picture_of_specialised_heads_has_their_names() -> None:
    """Six panels in two rows, titled with what the heads specialise in."""
    figure = plot.specialised_heads()
    assert [axes.get_title() for axes in panels(figure)] == NAMES
    assert {(2, 3)} == {
        axes.get_subplotspec().get_gridspec().get_geometry() for axes in panels(figure)
    }


def test_weights_of_the_wrong_orientation_are_caught() -> None:
    """Transposed weights make another picture: the check of the panels would see it."""
    square = weights(keys=3)
    figure = plot.attention_heads(square.swapaxes(1, 2))
    shown = np.stack([axes.images[0].get_array() for axes in panels(figure)])
    assert not np.array_equal(shown, square)
