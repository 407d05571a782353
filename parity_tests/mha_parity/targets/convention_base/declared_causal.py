"""Whether a target that hides no future means to, by its name, its documentation or its code.

It is judged as causal attention then: what is wrong of its causal rule is said as that, and one
that was forgotten is no plain attention that is right.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from mha_parity.core.parameters import Role
from mha_parity.targets.static.call_parameters import MODES, read_of_config
from mha_parity.targets.static.documented_layout import documented_sentences
from mha_parity.targets.static.names_in_code import names_read
from mha_parity.targets.static.source import comments_in

if TYPE_CHECKING:
    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.convention_base.convention import Convention

SAYS = "says that it is causal"
HIDES_NOTHING = "it does not hide the keys behind a query"
OF_ONE_HEAD = "with several heads rows reach each other that do not with one"
_CAUSAL_NAME = re.compile(
    r"(?<!not)(?<!non)(?<!un)(?<!not_)(?<!non_)(?<!\ba)causal.*(att|head)"
    r"|(?<!un)masked_?(multi|self)",
    re.IGNORECASE,
)
_CAUSAL_TEXT = re.compile(
    r"\b(causal|auto-?regressive|masked) [\w\s,-]*\battention"
    r"|\battention\b[^,;:()]* \bcausal(ly)?\b|\bcausal(ly)? mask",
    re.IGNORECASE,
)
# Words that make a sentence one of what may be, or is not.
_UNSURE_TEXT = re.compile(
    r"\b(no|not|non|never|without|bi-?directional|acausal|option\w*|if|when\w*|unless|either|or|may"
    r"|can|could|should|caller\w*|unlike|except|padd\w*|cross|todo|fixme)\b|\bnon-?causal|\buncausal",
    re.IGNORECASE,
)
_TRIANGLES = frozenset({"tril", "triu"})
_MASKS = frozenset({Role.MASK, Role.LENGTHS})
# With these a triangle is part of something else: a window on both sides, a bias of distances.
_OTHERWISE = re.compile(
    r"window|local|band|alibi|slope|dist|relative|rel_|shift|bias_table", re.IGNORECASE
)
_NUMBER = re.compile(r"-?[\d.]+(e-?\d+)?")
# What decides nothing of which keys are hidden: of a call, and of a constructor.
_OF_CALLS = frozenset({Role.INPUT, Role.DROPOUT, Role.RETURN})
_OF_LAYERS = frozenset({
    Role.SIZE, Role.HEADS, Role.DROPOUT, Role.PROJECTION_BIAS, Role.SCALE, Role.WEIGHTS,
})  # fmt: skip


def says_causal(convention: Convention, config: str = "", *, departs: bool = False) -> str:
    """Return what of a target of self-attention says that it is causal; "" where nothing does.

    Nothing does where a parameter may decide it. ``config`` is the constructor's parameter for a
    configuration: what is read of that may. Where answers are none of plain attention (``departs``)
    a triangle in the code says it, beside a name or a documentation also where there are masks.
    """
    subject = convention.subject
    if "self" not in convention.offer["inputs"]:
        return ""
    switched = any("causal" in each.lower() for each in dir(subject))  # by a name of the class
    named = [each for each in convention.parameters if each.name != config]
    read = read_of_config(subject, config) if config else ()
    deciding = [each for each in (*named, *read) if _may_decide(each)]
    masks = all(each.of == "call" and each.role in _MASKS for each in deciding)
    triangle = _triangle(subject) if departs else ""
    if switched or (deciding and not (masks and triangle)):
        return ""
    if _CAUSAL_NAME.search(getattr(subject, "__name__", "")):
        return "its name"
    if any(map(_is_causal_text, documented_sentences(subject))):
        return "its documentation"
    if any(map(_is_causal_text, comments_in(subject))):
        return "a comment in its code"
    return "" if deciding else triangle


def judge_as_causal(convention: Convention, what: str, *, of_one_head: bool) -> str:
    """Offer causal self-attention alone to a target that hides nothing; return the remark.

    ``of_one_head``: with one head it does, and with several something mixes its rows.
    """
    convention.hides_future = True
    convention.offer = convention.offer | {"attn": ("causal",), "inputs": ("self",)}
    convention.reasons["attn", "none"] = f"{what} {SAYS}"
    but = OF_ONE_HEAD if of_one_head else HIDES_NOTHING
    return (
        f"{what} {SAYS}, and nothing switches that off: judged as causal attention, though {but}."
    )


def _is_causal_text(sentence: str) -> bool:
    """Return whether a sentence says without conditions that attention is causal."""
    return _CAUSAL_TEXT.search(sentence) is not None and _UNSURE_TEXT.search(sentence) is None


def _triangle(subject: Any) -> str:
    """Return the one kind of triangle that the code of a target makes, as what says its rule."""
    functions = vars(subject).values() if isinstance(subject, type) else (subject,)
    names = {name for each in functions if inspect.isfunction(each) for name in names_read(each)}
    found = names & _TRIANGLES
    other = any(map(_OTHERWISE.search, names))
    return f"`{min(found)}` in its code" if len(found) == 1 and not other else ""


def _may_decide(parameter: Parameter) -> bool:
    """Return whether a parameter may say which keys are hidden: all but those known not to."""
    if parameter.name in MODES:
        return False
    if parameter.of == "call":
        return parameter.role not in _OF_CALLS
    is_number = not parameter.required and _NUMBER.fullmatch(parameter.default) is not None
    harmless = parameter.role in _OF_LAYERS or (parameter.role is Role.OTHER and is_number)
    return not harmless or "window" in parameter.name.lower()
