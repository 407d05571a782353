"""The axes that an annotation has are those of the masks that a target is judged by."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.experiments.designs.variants import OF_ROWS
from mha_parity.targets.load import load
from mha_parity.targets.static.annotated_axes import annotated_axes
from subject_checks import SUBJECTS, checks_of

judged = checks_of("annotated_shapes.py", cases=60, dtypes=("float64",))


def test_a_mask_of_its_annotated_axes_passes() -> None:
    """One of keys is broadcast over heads and queries."""
    verdict = judged("OfKeys")
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_a_mask_that_is_broadcast_otherwise_fails() -> None:
    """Kills a shape that trials alone decide: every mask passed as (L, S), as it is read."""
    verdict = judged("OfRows", diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert all("none" != each.case.padding for each in verdict.failures)
    assert OF_ROWS in verdict.diagnosis[0].title, verdict.diagnosis


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ('Bool[Tensor, "batch queries keys"]', ("batch", "queries", "keys")),
        ("Optional[TensorType['batch', 'seq_length']]", ("batch", "seq_length")),
        ('Bool[Tensor, "... queries keys"]', ()),  # of any number of axes
        ('Bool[Tensor, "b k"] | Bool[Tensor, "b q k"]', ()),  # of two shapes
        ('Bool[Tensor, "#b k"]', ()),  # that is broadcast
        ("Tensor | None", ()),
        ("tuple[int, str]", ()),
    ],
)
def test_words_are_read_from_the_source(
    annotation: str, expected: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without the library of the annotation, which is not evaluated."""
    file = tmp_path_factory.mktemp("annotated") / "annotated.py"
    head = "from __future__ import annotations\n"
    file.write_text(f"{head}def attention(x, mask: {annotation} = None):\n    return x\n")
    assert expected == annotated_axes(load(f"{file}:attention"), "mask")
    assert () == annotated_axes(load(f"{SUBJECTS}/annotated_shapes.py:OfKeys"), "none")
