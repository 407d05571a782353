"""Documentation of a mask by its target: whether True hides, and its values.

A layer may give torch's name to a mask of the opposite meaning. Where it says so, it is judged by
what it says, and not by torch's; and so is a mask of any name, whatever trials show of it.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.mask_format import ADDED, MaskContent
from mha_parity.targets.masks.hidden_keys import SILENT
from mha_parity.targets.static.documented_text import documented_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.calls.mask_format import MaskFormat, MaskSearchResult
    from mha_parity.targets.masks.hidden_keys import MaskExperiment

_VALUE = re.compile(
    r"(?<![\w.])(?:(0|false|zeros?)|(1|true|ones?|non-?zeros?))(?![\w.])", re.IGNORECASE
)
# The zeros of an answer are no values of a mask: "a hidden row gives zeros", "gets zero weight".
_OF_ANSWER = re.compile(
    r"\b(?:gives?|giving|gets?|returns?|yields?|outputs?|produces?|becomes?|receives?)"
    r"\s+(?:all\s+|exactly\s+|an?\s+)?$",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"\b(not|no(body| one)?|never|cannot|without(?! (restriction|limit))|except|unless|other than"
    r"|but|outside|neither|nothing)\b|\w+n['\u2019]t\b|\bnon(?=-?[a-z])|!=",
    re.IGNORECASE,
)
# `mask` is a verb in "0 = mask", and a noun in "mask[i, j]" and "a mask where".
_HIDES = re.compile(
    r"\b(mask(?!\s*(\[|[=!]=|is\b|of\b|with\b|where\b|tensor|values?\b|that\b))(s|ed|ing)?"
    r"|hid(e|es|den|ing)|ignor\w+|block\w*|exclud\w+|prevent\w*|forbid\w*|disallow\w*"
    r"|drop(s|ped)?|suppress\w*|pad(ding|ded)?|invalid)\b",
    re.IGNORECASE,
)
_KEEPS = re.compile(
    r"\b(keep(s|ing)?|kept|attend(s|ed|ing)?|allow(s|ed)?|visible|valid|see[ns]?|look(s|ed|ing)? at"
    r"|influenc\w+|includ\w+|(may|can) (be )?used?|usable"
    r"|unmask\w*|tak(es?|ing) part|participat\w+|permit\w*|real|actual|be read)\b",
    re.IGNORECASE,
)
_INTEGERS = re.compile(
    r"\b(u?int(eger)?s?(8|16|32|64)?|long(tensor)?|0\s*(/|or|and)\s*1|1\s*(/|or|and)\s*0"
    r"|(zeros?|ones?)\s+(or|and)\s+(zeros?|ones?))\b",
    re.IGNORECASE,
)
# Integers beside booleans; the tensors of older versions of torch, which hid by them, are none.
_BOTH_TYPES = re.compile(
    r"\bbool(ean)?s?\s*,?\s*(or|/|\|)\s*(0\s*/\s*1\s*)?int(eger)?s?"
    r"|\bint(eger)?s?(8|16|32|64)?\s*,?\s*(or|/|\|)\s*bool",
    re.IGNORECASE,
)
_ADDED = re.compile(r"\b(additive|added)\b", re.IGNORECASE)
_BOOLEANS = re.compile(r"\b(bool\w*|true|false)\b", re.IGNORECASE)
_TYPE = re.compile(r"(?<!no )(?<!not )(?<!non-)\bbool\w*", re.IGNORECASE)
# A True that is said to be, or to do, something: "True = keep", "True where", "True attends"; not
# "if True", which is said of a switch.
_TRUE = re.compile(
    r"\bTrue\b[`*]*(?:\s(?:values?|positions?|entries))?\s*(?:[=:]|(?:mean|mark|indicate|denote)s?\b"
    r"|(?:for|where|at|is|are)\b|(?:keep|hide|attend|ignore|mask|allow|drop)s?\b)"
)
_CONDITION = re.compile(r"\b(if|when|whether)\s+[`*]*true\b", re.IGNORECASE)
# As torch's documentation said until it took floats, whatever the annotation.
_BINARY = re.compile(r"\bbinary mask\b", re.IGNORECASE)
# As annotations: `torch.BoolTensor`, `Bool[Tensor, "L S"]`; a `bool` alone is a switch.
_BOOLEAN_ARRAY = re.compile(r"\bBoolTensor\b|\bBool\[[^\]]*\]")
_INTEGER_ARRAY = re.compile(r"\b(Long|Int|Short|Byte)Tensor\b|\bU?Int\d*\[")
_OTHER_ARRAYS = re.compile(r"(Tensor|ndarray|Array|ArrayLike)\b|\bFloat")
_FLOATS = re.compile(
    r"\b(float\w*|additive|add(s|ed)?|bias\w*|negative|finfo)\b|-\s*(inf|\u221e)|\d\.?e\+?\d",
    re.IGNORECASE,
)
# Full-width punctuation stands in documentation of East Asian languages.
_CLAUSE = re.compile(
    r"[;,]\s|[\uff0c\uff1b\u3001\u3002]|\.(?:\s|$)|\s(?:and|while|otherwise|else)\s"
)
# The first line of what is said of a parameter: a bullet, its name, its type; or a row of a table.
# Other parameters of which the same is said may stand before or behind it.
_OTHER = r"[`*]*\w+[`*]*(?:\s*\([^()\n]*\))?"
_ENTRY = (
    rf"^(?P<indent>[ \t]*)(?:[-*]\s*)?(?::param\s+)?(?:{_OTHER},\s)*[`*]*{{name}}[`*]*"
    rf"(?:\s*(?P<type>\((?:[^()\n]|\([^()\n]*\))*\))?(?:,\s{_OTHER})*\s*[:=]"
    r"|[ \t]{{2,}}(?=\S)|[ \t](?=bool|float))"
)
# One within a line, behind what is said of another: up to the end of its sentence, or the next one.
_ENTRY_IN_LINE = (
    r"(?<=[;.,]\s)[`*]*{name}[`*]*(?:\s*[:=]|\s(?=bool|[(\[]|broadcast))"
    r"([^;\n]*?)(?=[;\n]|\.\s|,\s[`*]*\w+[`*]*\s*:\s|$)"
)
# The end of a line within a sentence: no entry of another parameter begins behind it.
_WRAPPED = re.compile(r"(?<![.:;])\n[ \t]*(?=[a-z(])(?![`*]*\w+[`*]*\s*[:=(\[])")
# What stands in them says in other words what the clause says: "valid (non-padded)".
_ASIDE = re.compile(r"\([^()]*\)")
# What is said of several masks at once.
_ALL_MASKS = re.compile(
    r"\b(?:both|all|each|two)\b[^.]*\bmasks\b[^.]*(?=\.|$)"
    r"|\bin (?:a )?bool(?:ean)? masks?,? (?P<of_booleans>[^.;]*)",
    re.IGNORECASE,
)


# What a module says of its masks: `Masking uses the convention "True = attend", ...`.
_SENTENCE = re.compile(r"\n\s*\n|(?<=[.;])\s+")
_OF_MASKS = re.compile(
    r"^\W*(?:\w+ )?mask(?:s|ing)? (?:uses?|follows?|convention|are|is|have)\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
_OF_ONE_KIND = re.compile(r"causal|pad|future|look-?ahead|subsequent|triang|loss", re.IGNORECASE)


def documented_hides(
    subject: Any, entry: Any, name: str, *, clauses: int = 1, by_true: bool = True
) -> bool | None:
    """Return whether True of a mask hides by the documentation of a target; None if unsaid.

    That of ``entry``, its call, comes first. What says both says nothing, nor do fewer ``clauses``:
    what is said of 1 and of 0, in two of them, is hardly misread, nor is what is said of
    `True` (``by_true``; of a mask of queries it may be said of rows).
    """
    for each in (entry, subject, getattr(subject, "__init__", None)):
        text = documented_text(each)
        said = _meanings_in(_said(text, name))
        if not said and "mask" in name.lower() and (every := _ALL_MASKS.search(text)):
            said = _meanings_in(every["of_booleans"] or every[0])
        if len(said) + (by_true and _says_true(text, name)) >= clauses and len({*said}) == 1:
            return said[0]
    return _said_by_module(subject) if clauses > 1 and "mask" in name.lower() else None


def _said_by_module(subject: Any) -> bool | None:
    """Return whether True hides by what the documentation of a module says of all its masks.

    In two clauses; of masks of one kind it says nothing of others.
    """
    module = sys.modules.get(getattr(subject, "__module__", None) or "")
    sentences = _SENTENCE.split(_WRAPPED.sub(" ", documented_text(module)))
    of_masks = (_OF_MASKS.search(each) for each in sentences if not _OF_ONE_KIND.search(each))
    said = [*itertools.chain.from_iterable(_meanings_in(each[1]) for each in of_masks if each)]
    return said[0] if len(said) > 1 and len({*said}) == 1 else None


def _says_true(text: str, name: str) -> bool:
    """Return whether a clause says of a mask what its True does; "if True" is said of a switch."""
    clauses = [each for each in _CLAUSE.split(_said(text, name)) if not _CONDITION.search(each)]
    return any(_TRUE.search(each) and _meanings_in(each) for each in clauses)


def documented_added(subject: Any, name: str) -> bool:
    """Return whether the documentation of a function says that a mask is floats that are added.

    Of booleans it says nothing then; in an entry of its own, or in a sentence that it begins.
    """
    text = documented_text(subject)
    begun = re.search(rf"(?:^|[.;\n]\s*)[`*]*{re.escape(name)}[`*]* (?:is|are) [^.]*", text)
    said = _said(text, name) or (begun[0] if begun else "")
    return bool(_ADDED.search(said)) and not _BOOLEANS.search(said)


def with_documented_integers(
    subject: Any, entry: Any, experiment: MaskExperiment, found: MaskSearchResult
) -> MaskSearchResult:
    """Return what is taken with integers too, where the documentation says so and none raise.

    A mask of 0 and 1 is then judged by what its booleans mean: ``~mask`` of integers is never 0.
    Where all raise, documentation that says integers beside booleans demands them of the cases.
    """
    if not documents_integers(subject, entry, found.parameter.name):
        return _without_integers(subject, entry, found)
    known = {each.axes for each in found.taken if each.kind == "int"}
    differences = {
        replace(each, kind="int"): _difference(experiment, found.parameter.key, each)
        for each in found.taken
        if each.kind == "bool" and each.axes not in known
    }
    answered = {taken: each for taken, each in differences.items() if each is not None}
    unlike = any(each > SILENT for each in answered.values())
    said = said_by_both(subject, entry, found.parameter.name)
    if differences and not answered and _BOTH_TYPES.search(said):
        return replace(found, integers_raise=True)
    return replace(found, taken=(*found.taken, *answered), integers_unlike=unlike)


def _without_integers(subject: Any, entry: Any, found: MaskSearchResult) -> MaskSearchResult:
    """Return what is taken without integers where the documentation says booleans.

    NumPy makes float64 of integers that it multiplies with floats, whatever the floats are.
    """
    booleans = {each.axes for each in found.taken if each.kind == "bool"}
    if not booleans or not documents_booleans(subject, entry, found.parameter.name):
        return found
    kept = (each for each in found.taken if each.kind != "int" or each.axes not in booleans)
    return replace(found, taken=tuple(kept))


def documents_integers(subject: Any, entry: Any, name: str) -> bool:
    """Return whether documentation or annotation says of a mask that it is integers."""
    annotated = _INTEGER_ARRAY.search(_annotation(entry, name))
    return bool(annotated or _INTEGERS.search(said_by_both(subject, entry, name)))


def documents_booleans(subject: Any, entry: Any, name: str) -> bool:
    """Return whether documentation or annotation says of a mask that it is boolean, not floats."""
    said, annotated = said_by_both(subject, entry, name), _annotation(entry, name)
    booleans = _TYPE.search(said) or _BOOLEAN_ARRAY.search(annotated)
    others = _OTHER_ARRAYS.search(_BOOLEAN_ARRAY.sub("", annotated))
    marks = _BINARY.search(said) or (booleans and not others)
    return bool(marks) and not _FLOATS.search(said)


def says_booleans(subject: Any, entry: Any, name: str) -> bool:
    """Return whether documentation says of a parameter that it is boolean, whatever its annotation.

    A `Tensor` may be one of floats, which is said of a mask, and decides nothing of rows.
    """
    said = said_by_both(subject, entry, name)
    return bool(_TYPE.search(said)) and not _FLOATS.search(said)


def without_floats(
    subject: Any, entry: Any, found: MaskSearchResult, hides: bool | None
) -> MaskSearchResult:
    """Return what is taken without floats, where the documentation says booleans and no floats.

    A call may take floats by chance, on one of its paths alone. Where floats alone have an effect
    that is understood, booleans of the documented meaning ``hides`` are judged in their shapes.
    """
    if not documents_booleans(subject, entry, found.parameter.name):
        return found
    kept = tuple(each for each in found.taken if each.kind != ADDED)
    if not kept and hides is not None:
        kept = tuple(replace(each, kind="bool", hides=hides, fit=0.0) for each in found.taken)
    return replace(found, taken=kept) if kept else found


def _difference(experiment: MaskExperiment, key: str, booleans: MaskFormat) -> float | None:
    """Return by how much weights differ between a mask of 0 and 1 and the same of booleans.

    None where integers raise: they are not offered.
    """
    content = MaskContent(experiment.hidden(booleans.axes))
    kinds = (booleans, replace(booleans, kind="int"))
    values = (each.value(content, experiment.problem.dtype) for each in kinds)
    try:
        of_booleans, of_integers = (experiment.weights({key: value}) for value in values)
    except CandidateError:
        return None
    return float(np.abs(of_integers - of_booleans).max())


def _annotation(entry: Any, name: str) -> str:
    """Return the annotation of a parameter of a call as text; "" where it has none."""
    try:
        found = inspect.signature(entry).parameters[name]
    except (KeyError, TypeError, ValueError):
        return ""
    return str(found.annotation)


def said_by_both(subject: Any, entry: Any, name: str) -> str:
    """Return what the documentation of a call, and then of its target, says of one parameter."""
    return " ".join(_said(documented_text(each), name) for each in (entry, subject))


def _said(text: str, name: str) -> str:
    """Return what a documentation says of one parameter, in one line; "" where nothing."""
    found = re.search(_ENTRY.format(name=re.escape(name)), text, re.MULTILINE)
    if found is None:
        sentences = _WRAPPED.sub(" ", text)
        within = re.search(_ENTRY_IN_LINE.format(name=re.escape(name)), sentences)
        return within[1].strip() if within else ""
    first, *more = text[found.end() :].split("\n")
    lines = [found["type"] or "", first]
    for line in more:
        # The text of an entry is indented below its name.
        if not line.strip() or len(line) - len(line.lstrip()) <= len(found["indent"]):
            break
        lines.append(line)
    return " ".join(line.strip() for line in lines).strip()


def _meanings_in(text: str) -> list[bool]:
    """Return whether True hides, by each clause of a text that says so."""
    clauses = _CLAUSE.split(text)
    said = ([*_meanings(_ASIDE.sub(" ", each))] or [*_meanings(each)] for each in clauses)
    return list(itertools.chain.from_iterable(said))


def _meanings(clause: str) -> Iterator[bool]:
    """Yield whether True hides by a clause: a value, and what it does; of two values nothing."""
    found = _VALUE.finditer(clause)
    values = [each for each in found if not _OF_ANSWER.search(clause[: each.start()])]
    if len({bool(each[2]) for each in values}) != 1:
        return
    value = values[0]
    rest = clause[: value.start()] + clause[value.end() :]
    hides, keeps = bool(_HIDES.search(rest)), bool(_KEEPS.search(rest))
    if hides == keeps:
        return
    negated = bool(_NOT.search(rest))
    hidden = hides != negated
    yield hidden if value[2] else not hidden
