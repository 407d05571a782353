"""Requirements of a mask parameter: by an option, its documentation, or its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mha_parity.core.candidate import TargetError
from mha_parity.core.parameters import Role
from mha_parity.targets.calls.mask_format import SHAPES, axes_text
from mha_parity.targets.masks.documented_meaning import (
    documented_added,
    documented_hides,
    documents_booleans,
    documents_integers,
)
from mha_parity.targets.masks.documented_shapes import (
    demanded_shapes,
    documented_shapes,
    documents_keys_first,
)
from mha_parity.targets.masks.query_masks import QUERIES
from mha_parity.targets.static.documented_causal_alignment import documents_last_keys
from mha_parity.targets.static.projection_names import snake_case

if TYPE_CHECKING:
    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.calls.mask_format import Axes
    from mha_parity.targets.convention_base.convention import Convention

# Whose call has one of these, or is (query, key, value, ...), promises nn.MultiheadAttention's.
TORCH_COMPANIONS = frozenset({"key_padding_mask", "need_weights", "average_attn_weights"})
SDPA_COMPANIONS = frozenset({"is_causal", "dropout_p", "enable_gqa"})
TORCH_SWITCH = "is_causal"
TORCH_MASKS = frozenset({"attn_mask", "key_padding_mask"})
TORCH_ROWS = ("query", "key", "value")
# Names that say what a True does, though they are not torch's.
_KEEPS = re.compile(r"(keep|visible|allow(ed)?)(_mask)?|(may|can)_(attend|see)")
_HIDES = re.compile(
    r"(hide|blocked|ignored?|dropped|forbidden|masked_out)(_mask)?|drop_(pairs|keys)"
)
# Switches of the causal rule whose True hides nothing: `future=False` forbids to look ahead.
_LETS_SEE = re.compile(r"((allow|see|attend|with|use)s?_)?(the_)?(future|look_?ahead)")
CERTAIN = 2  # clauses that are hardly misread
# Names by which a True may be padding; one clause of documentation settles it.
_PADS = re.compile(r"(^|_)pad(ded|ding)?$")


@dataclass(frozen=True, slots=True)
class MaskRequirement:
    """Requirement of a parameter: a polarity by its name or by option, or nothing.

    ``hides``: whether True hides; None: whatever is found. ``shapes``: the shapes to be judged
    although the mask has no effect there (torch's own), () where the experiment alone decides.
    ``added``: floats that are added are demanded, by option or by the name of a bias. ``certain``:
    only what fits exactly counts, since the name does not say that it is a mask. ``documented``:
    the shapes that the target documents, which are judged where its calls take them. ``demanded``:
    the one shape that it documents, which is judged though calls raise. ``otherwise``: whether True
    hides by what it says of a mask of booleans or of integers, where trials show no meaning of one.
    ``documents_added``: whether it documents floats that are added.
    ``last``: whether its documentation aligns the causal rule at the last query and key.
    ``keys_first``: whether the documentation says that keys come before queries.
    """

    hides: bool | None = None
    shapes: tuple[Axes, ...] = ()
    only: Axes = ()
    added: bool = False
    certain: bool = False
    documented: tuple[Axes, ...] = ()
    demanded: tuple[Axes, ...] = ()
    otherwise: bool | None = None
    documents_added: bool = False
    last: bool | None = None
    keys_first: bool = False

    @property
    def promised(self) -> tuple[Axes, ...]:
        """The shapes that are judged whatever a mask does in them."""
        return (*self.shapes, *self.documented)

    @property
    def said(self) -> bool | None:
        """Whether True hides where trials show nothing: as demanded, or as documented."""
        return self.otherwise if self.hides is None else self.hides


def requirement(convention: Convention, parameter: Parameter) -> MaskRequirement:
    """Return what is demanded of a parameter: by option, documentation, or name."""
    given = convention.mask_meanings.get(parameter.name, "")
    if given:
        return _by_option(given)
    if parameter.role is Role.CAUSAL:
        last = documents_last_keys(convention.subject)
        # `is_causal` is torch's own name: its first query sees the first key alone.
        own = parameter.name != TORCH_SWITCH
        hides = _LETS_SEE.fullmatch(snake_case(parameter.name)) is None
        return MaskRequirement(hides, last=last if last is not None or own else False)
    if parameter.role is Role.SCORE_BIAS:
        return MaskRequirement(added=True)
    subject, entry, name = convention.subject, convention.entry(), parameter.name
    shapes, named = documented_shapes(subject, entry, name), by_name(convention, name)
    booleans = documents_booleans(subject, entry, name)
    marks = booleans or documents_integers(subject, entry, name)
    # A name that says nothing is that of a mask where its type and its shape are documented.
    if parameter.role in {Role.OTHER, Role.INPUT} and not (booleans and shapes):
        return MaskRequirement(named.hides, certain=True)
    found = by_documentation(convention, name) or named
    otherwise = documented_hides(subject, entry, name) if marks else None
    of_itself = convention.offer["inputs"] == ("self",)
    demanded = demanded_shapes(subject, entry, name, of_itself=of_itself)
    return replace(
        found, documented=shapes, demanded=demanded, otherwise=otherwise,
        documents_added=documented_added(subject, name),
        keys_first=documents_keys_first(subject, name),
    )  # fmt: skip


def by_documentation(convention: Convention, name: str) -> MaskRequirement | None:
    """Return what a target documents of a mask, where its name does not say the same."""
    named = by_name(convention, name)
    first = next((each.name for each in convention.call_parameters), "")
    of_queries = name.startswith(f"{first}_") or QUERIES.search(name.lower())
    pads = _PADS.search(name.lower()) and not of_queries
    clauses = 1 if named.hides is not None or pads else CERTAIN
    said = documented_hides(
        convention.subject, convention.entry(), name, clauses=clauses, by_true=not of_queries
    )
    if said is None or said == named.hides:
        return None
    return MaskRequirement(said, named.shapes[:1])


def _by_option(given: str) -> MaskRequirement:
    """Return what ``hides``, ``keeps`` or ``additive`` demands, perhaps in one shape only."""
    meaning, _, shape = given.partition(":")
    known = [axes for axes in SHAPES if _plain(axes_text(axes)) == _plain(shape)]
    if shape and not known:
        shapes = " ".join(axes_text(axes) for axes in SHAPES)
        raise TargetError(f"got a mask of shape {shape}, but should be one of {shapes}.")
    only = known[0] if shape else ()
    hides = {"hides": True, "keeps": False}.get(meaning)
    return MaskRequirement(hides, (only,) if only else SHAPES, only, added=meaning == "additive")


def by_name(convention: Convention, name: str) -> MaskRequirement:
    """Return what a target promises by the name of a parameter: torch's, or one that says it."""
    words = snake_case(name)
    keeps, hides = (pattern.fullmatch(words) for pattern in (_KEEPS, _HIDES))
    said = MaskRequirement(hides is not None) if keeps or hides else None
    return said or by_torchs_name(convention, name)


def by_torchs_name(convention: Convention, name: str) -> MaskRequirement:
    """Return what a target promises by a parameter of torch.nn.MultiheadAttention's name."""
    if convention.convention == "sdpa" and name == "attn_mask" and not _is_of_module(convention):
        return MaskRequirement(False, (("L", "S"), ("N", "H", "L", "S")))
    if name == "key_padding_mask":
        return MaskRequirement(True, (("N", "S"), ("S",)))
    if name == "attn_mask" and _is_torchs(convention):
        return MaskRequirement(True, (("L", "S"), ("NH", "L", "S")))
    return MaskRequirement()


def _plain(shape: str) -> str:
    return shape.replace(" ", "").strip("(),").upper()


def _is_of_module(convention: Convention) -> bool:
    """Whether a function has further names of the module's call, and none of sdpa's own."""
    names = {p.name for p in convention.parameters if p.of == "call"}
    return bool(TORCH_COMPANIONS & names) and not SDPA_COMPANIONS & names


def _is_torchs(convention: Convention) -> bool:
    """Whether the call has the names of torch.nn.MultiheadAttention's: not those of sdpa."""
    names = [p.name for p in convention.parameters if p.of == "call"]
    if TORCH_COMPANIONS & set(names):
        return True
    if not isinstance(convention.subject, type):  # sdpa is a function of query, key, value too
        return False
    return tuple(names[:3]) == TORCH_ROWS and "is_causal" not in names
