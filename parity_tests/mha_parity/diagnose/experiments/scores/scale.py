"""Law of the effective scale, fitted over D, H, L, S, E and N."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.weights_from_output import read_case_weights
from mha_parity.diagnose.experiments.scores.transfer_curve import curve, slope

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller

SIZES = (
    {"head_dim": 5, "heads_count": 2, "queries": 6, "keys": 4},
    {"head_dim": 7, "heads_count": 3, "queries": 6, "keys": 9},
    {"head_dim": 8, "heads_count": 3, "queries": 5, "keys": 7},
    {"head_dim": 12, "heads_count": 2, "queries": 4, "keys": 10},
    {"head_dim": 13, "heads_count": 4, "queries": 7, "keys": 11},
    {"head_dim": 20, "heads_count": 5, "queries": 9, "keys": 6},
    {"head_dim": 33, "heads_count": 2, "queries": 3, "keys": 8},
    {"head_dim": 16, "heads_count": 3, "queries": 8, "keys": 5},
    # Above 64 and 128: a constant is no width that is rounded up to them.
    {"head_dim": 70, "heads_count": 2, "queries": 4, "keys": 6},
    {"head_dim": 131, "heads_count": 3, "queries": 3, "keys": 5},
)
# How far a scale that is read may be off, relative; formulas differ by more at some size.
NEARLY = 1e-2  # of 1; and of how far a factor is from it
PRECISELY = "compute it with math.sqrt, or in the dtype of the scores"
NO_SCALE = 1e-9  # scales below are rounding of none
LEAST_ADDEND = 0.5  # of those that have formulas of their own
NARROW_UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
EXACT = {"float64": 1e-6, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class EffectiveScale:
    """The effective scale of one case."""

    case: Case
    scale: float

    @property
    def factor(self) -> float:
        """The scale over 1/sqrt(D)."""
        return self.scale * math.sqrt(self.case.head_dim)

    def equals(self, scale: float) -> bool:
        """Return whether this is the scale, but for how exactly it is read."""
        return abs(scale - self.scale) <= EXACT[self.case.dtype] * abs(self.scale)


def measured(caller: Caller) -> list[EffectiveScale]:
    """Return the effective scales that can be read, one a case; heads must agree."""
    found = []
    for sizes in SIZES:
        heads = 1 if caller.base.heads_count == 1 else sizes["heads_count"]
        case = caller.case(batch=2, **{**sizes, "heads_count": heads})
        if not caller.running():
            break
        if "many" not in caller.candidate.offer["heads"] and heads > 1:
            continue
        reading = read_case_weights(caller, case)
        shape = None if reading is None else curve(reading)
        if reading is None or shape is None:
            continue
        slopes, misfit = slope(shape)
        if misfit <= shape.atol and np.ptp(slopes) <= shape.atol:
            found.append(EffectiveScale(case, float(slopes.mean()) * reading.problem.scale))
    return found


RIGHT_LAW = "1/sqrt(D)"
ROUNDED, ROOT_ROUNDED = " rounded to", ", the root rounded to"
LAWS: dict[str, Callable[[Case], float]] = {
    RIGHT_LAW: lambda c: c.head_dim**-0.5,
    "1, no scale at all": lambda _: 1.0,
    "1/sqrt(E)": lambda c: c.embed_dim**-0.5,
    "1/D": lambda c: 1 / c.head_dim,
    "1/E": lambda c: 1 / c.embed_dim,
    "1/sqrt(H)": lambda c: c.heads_count**-0.5,
    "1/H": lambda c: 1 / c.heads_count,
    "1/sqrt(S)": lambda c: c.keys**-0.5,
    "1/sqrt(L)": lambda c: c.queries**-0.5,
    "1/S": lambda c: 1 / c.keys,
    "1/L": lambda c: 1 / c.queries,
    "1/sqrt(N)": lambda c: c.batch**-0.5,
    "sqrt(D)": lambda c: c.head_dim**0.5,
    "1/sqrt(D + 1)": lambda c: (c.head_dim + 1) ** -0.5,
    "1/sqrt(D - 1)": lambda c: (c.head_dim - 1) ** -0.5,
    "1/(1 + sqrt(D))": lambda c: 1 / (1 + c.head_dim**0.5),
    "1/sqrt(2 D)": lambda c: (2 * c.head_dim) ** -0.5,
    "1/sqrt(D // 2)": lambda c: (c.head_dim // 2) ** -0.5,
    "1/int(sqrt(D))": lambda c: 1 / math.isqrt(c.head_dim),
    "1/round(sqrt(D))": lambda c: 1 / round(math.sqrt(c.head_dim)),
    "D^(-1/4)": lambda c: c.head_dim**-0.25,
    "D^(-3/2)": lambda c: c.head_dim**-1.5,
    "1/log2(D)": lambda c: 1 / math.log2(c.head_dim),
    "ln(2)/sqrt(D), so 2^score in place of exp(score)": (lambda c: math.log(2) * c.head_dim**-0.5),
    "ln(10)/sqrt(D), so 10^score in place of exp(score)": (
        lambda c: math.log(10) * c.head_dim**-0.5
    ),
    "log2(e)/sqrt(D), so exp of a score in base-2 units": (
        lambda c: c.head_dim**-0.5 / math.log(2)
    ),
    "ln(S)/sqrt(D)": lambda c: math.log(c.keys) * c.head_dim**-0.5,
    "1/sqrt(3 E)": lambda c: (3 * c.embed_dim) ** -0.5,
}


def _padded(multiple: int) -> Callable[[Case], float]:
    return lambda c: (-(-c.head_dim // multiple) * multiple) ** -0.5


for _m in (2, 4, 8, 16, 32, 64, 128):
    LAWS[f"1/sqrt(D rounded up to a multiple of {_m})"] = _padded(_m)
LAWS["1/sqrt(D rounded up to a power of two)"] = lambda c: (
    (1 << (c.head_dim - 1).bit_length()) ** -0.5
)


def _with_decimals(count: int) -> tuple[Callable[[Case], float], Callable[[Case], float]]:
    """Return the right scale with some decimals, and the inverse of the root with as many."""
    return (
        lambda c: round(c.head_dim**-0.5, count),
        lambda c: 1 / round(c.head_dim**0.5, count),
    )


for _n in range(1, 7):
    _scale, _root = _with_decimals(_n)
    LAWS[f"1/sqrt(D), rounded to {_n} decimals"] = _scale
    LAWS[f"1/sqrt(D), the root rounded to {_n} decimals"] = _root


def law(found: list[EffectiveScale]) -> str:
    """Return the formula that gives every effective scale, or the factors on the expected one."""
    if len(found) < 3:
        return ""
    if all(abs(m.scale) < NO_SCALE for m in found):
        return "0: no score has an effect"
    if text := _at_one_width(found) or _with_addend(found) or _listed_law(found):
        return text
    if rounded := _rounded_to(found):
        return f"{RIGHT_LAW}{rounded}"
    scale = float(np.mean([m.scale for m in found]))
    factor = float(np.mean([m.factor for m in found]))
    if all(m.equals(factor * m.case.head_dim**-0.5) for m in found):
        return f"{factor:.6g}/sqrt(D)" if abs(factor - 1) > NEARLY else _nearly_one(factor)
    fitted = constant(scale) if all(m.equals(scale) for m in found) else _power(found)
    fitted = fitted or _law_of_another_size(found)
    return fitted or f"no formula in D, H, L, S or E: {_listed(found)}"


def _listed_law(found: list[EffectiveScale]) -> str:
    """Return the first of the known formulas that gives every scale."""
    laws = (text for text, of in LAWS.items() if all(m.equals(of(m.case)) for m in found))
    return next(laws, "")


def with_addend(caller: Caller) -> Effect | None:
    """Return that a number is added below the fraction, as the scales at ten widths show."""
    formula = _with_addend(measured(caller))
    if not formula:
        return None
    text = f"the effective scale is {formula}, expected {RIGHT_LAW}"
    return Effect(text, "add nothing to D or its root", operation="scale")


def _with_addend(found: list[EffectiveScale]) -> str:
    """Return the right formula with a small number added to D, or to its root; "" where none is.

    It is the same at all widths to a hundredth, which no rounding of a scale is.
    """
    none = any(abs(m.scale) < NO_SCALE for m in found)
    if none or len({m.case.head_dim for m in found}) < FITTED_SIZES:
        return ""
    for text, addends in (
        ("1/sqrt(D {})", [m.scale**-2 - m.case.head_dim for m in found]),
        ("1/(sqrt(D) {})", [1 / m.scale - math.sqrt(m.case.head_dim) for m in found]),
    ):
        mean = float(np.mean(addends))
        if 0 < abs(mean) < LEAST_ADDEND and np.ptp(addends) <= NEARLY * abs(mean):
            return text.format(f"{'-' if mean < 0 else '+'} {abs(mean):.3g}")
    return ""


def _at_one_width(found: list[EffectiveScale]) -> str:
    """Return the scale where all cases have one D, as of a built layer: no law of D rests on it.

    "" where they have several, or where it follows another size.
    """
    width, scale = found[0].case.head_dim, float(np.mean([m.scale for m in found]))
    if len({m.case.head_dim for m in found}) > 1:
        return ""
    if all(m.equals(width**-0.5) for m in found):
        return RIGHT_LAW
    return f"{scale:.6g} at D = {width}" if all(m.equals(scale) for m in found) else ""


def _listed(found: list[EffectiveScale]) -> str:
    return ", ".join(f"{m.scale:.4g} at D = {m.case.head_dim}" for m in found[:4])


def _is_power_of_two(found: EffectiveScale) -> bool:
    """Return whether a scale is the power of two above the right one, or that below."""
    power = math.log2(found.scale) if found.scale > 0 else math.inf
    near = math.isfinite(power) and abs(math.log2(found.factor)) < 1
    return near and found.equals(2.0 ** round(power))


def _rounded_to(found: list[EffectiveScale]) -> str:
    """Return that all scales, or their roots, are the right ones in a dtype, or powers of two."""
    for name, unit in NARROW_UNITS.items():
        if all(_is_rounded(m, m.scale, name, unit) for m in found):
            return f"{ROUNDED} {name}"
        if all(m.scale and _is_rounded(m, 1 / m.scale, name, unit) for m in found):
            return f"{ROOT_ROUNDED} {name}"
    if len({m.scale for m in found}) > 1 and all(map(_is_power_of_two, found)):
        return f"{ROUNDED} a power of two: {_listed(found)}"
    return ""


def _is_rounded(found: EffectiveScale, number: float, name: str, unit: float) -> bool:
    """Return whether a scale is near the right one, and it or its inverse a number of a dtype.

    Libraries round to the nearest number, or to its neighbour.
    """
    near = abs(found.factor - 1) <= 3 * unit
    rounded = float(np.asarray(number).astype(numpy_dtype(name)))
    return near and abs(rounded / number - 1) <= EXACT[found.case.dtype]


def _nearly_one(factor: float) -> str:
    """Return a factor that is 1 in six digits, and the constant that would give it if rounded."""
    text = f"{factor:.9g}/sqrt(D)"
    for name, value in (("log2(e)", 1 / math.log(2)), ("ln(2)", math.log(2))):
        for digits in range(2, 8):
            cut = math.floor(value * 10**digits) / 10**digits
            for written in (round(value, digits), cut):
                for ratio in (written / value, value / written):
                    if abs(ratio - factor) <= NEARLY * abs(factor - 1):
                        return f"{text}, as with {name} written as {written}"
    return text


def in_float32(head_dim: int, slope: float) -> Effect | None:
    """Return that a slope on the true scores is that of a root, or of its inverse, in float32.

    It differs from 1 by less than 2e-7, which a hundredth of it tells from other causes. Libraries
    round a root to the nearest number, or to its neighbour.
    """
    root = math.sqrt(head_dim)
    slopes = (
        *(root / each for each in _neighbours_in_float32(root)),
        *(root * each for each in _neighbours_in_float32(1 / root)),
    )
    if any(abs(slope - each) <= abs(each - 1) / 100 for each in slopes if each != 1):
        text = "the effective scale is 1/sqrt(D) rounded to float32"
        return Effect(text, PRECISELY, operation="scale")
    return None


def _neighbours_in_float32(value: float) -> tuple[float, ...]:
    """Return a number rounded to float32, and the numbers of float32 next to that."""
    rounded = np.float32(value)
    below, above = (np.nextafter(rounded, np.float32(end)) for end in (-np.inf, np.inf))
    return float(rounded), float(below), float(above)


def constant(value: float) -> str:
    """Return a scale that follows no size, and of which size it would be the right one."""
    square = 1 / (value * value)
    size = round(square)
    if abs(square - size) < 1e-4 * square:
        return (
            f"{value:.4g} = 1/sqrt({size}) whatever D: written into the code, or kept from a "
            f"call with D = {size}"
        )
    return f"{value:.6g} whatever D"


OTHER_SIZES = {"S": "keys", "L": "queries", "H": "heads_count", "E": "embed_dim"}
FITTED_SIZES = 4  # values of a size, at least, that a law of two numbers is fitted to
MANY_SIZES = 3  # where a size is the same in two cases, at least so often, it is alone with D


def _law_of_another_size(found: list[EffectiveScale]) -> str:
    """Return 1/sqrt(D) times a law of one other size: a power, a logarithm, or its values."""
    factors = np.array([m.factor for m in found])
    atol = EXACT[found[0].case.dtype] * np.abs(factors).max()
    for letter, name in OTHER_SIZES.items():
        sizes = [getattr(m.case, name) for m in found]
        x = np.log(sizes)
        if len({*sizes}) >= FITTED_SIZES:
            if (factors > 0).all():
                power, start = np.polyfit(x, np.log(factors), 1)
                if np.abs(np.exp(power * x + start) - factors).max() <= atol:
                    return f"{math.exp(start):.4g} {letter}^{power:.4g}/sqrt(D)"
            slope_, start = np.polyfit(x, factors, 1)
            if np.abs(slope_ * x + start - factors).max() <= atol:
                return f"{_logarithm(letter, slope_, start, atol)}/sqrt(D)"
        at = dict(zip(sizes, factors, strict=True))
        alike = all(abs(at[s] - f) <= atol for s, f in zip(sizes, factors, strict=True))
        if alike and len(sizes) - len(at) >= MANY_SIZES:
            shown = ", ".join(f"{at[size]:.4g} at {letter} = {size}" for size in sorted(at)[:4])
            return f"1/sqrt(D) times a factor that depends on {letter}: {shown}"
    return ""


def _logarithm(letter: str, slope_: float, start: float, atol: float) -> str:
    """Return a line over ln of a size as text; as a quotient where it is a whole base."""
    if abs(start) > atol:
        return f"({slope_:.4g} ln({letter}) + {start:.4g})".replace("+ -", "- ")
    base = math.exp(min(1 / slope_, 50.0)) if slope_ > 0 else 0.0
    if base > 1 and abs(base - round(base)) <= NEARLY:
        return f"ln({letter})/ln({round(base)})"
    return f"{slope_:.4g} ln({letter})"


def _power(found: list[EffectiveScale]) -> str:
    if min(m.scale for m in found) <= 0:
        return ""
    x = np.log([m.case.head_dim for m in found])
    y = np.log([m.scale for m in found])
    slope_, start = np.polyfit(x, y, 1)
    if np.abs(slope_ * x + start - y).max() > EXACT[found[0].case.dtype]:
        return ""
    return f"{math.exp(start):.4g} D^{slope_:.4g}"
