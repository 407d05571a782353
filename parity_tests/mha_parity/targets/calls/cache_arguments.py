"""How a target is called with a key/value cache."""

from __future__ import annotations

from dataclasses import dataclass

MEANING = "takes what a call on the rows before returned"
FILLED = "takes a container that calls fill with keys and values"
KEPT = "True keeps the keys and values of a call for the next ones"
ATTACHED = "is set to a cache before each call, which calls fill with keys and values"
BEFORE = "takes the number of rows before those of the call, whose keys the object keeps"


@dataclass(frozen=True, slots=True)
class CacheUse:
    """How a target is called with a cache.

    ``parameters`` take it, none where the object keeps it; ``switches`` are True; ``first_row``
    get the number of rows before. ``begun`` is what the first call is passed: "" for the default,
    a container that the target fills, or the name of what makes one in the user's code. ``places``
    are those of the cache in what is returned.
    ``whole_tables``: a table of positions has rows for those before the call's, too.
    ``method`` is the one of the object that takes a row more, without an axis of rows where
    ``flat``; "" for calls. ``passed`` is the cache that it takes besides and returns behind the
    output: "" for none, `None`, or the method of the object that makes an empty one. ``attached``
    is the attribute of the object that is set to it in the place of a parameter.
    """

    parameters: tuple[str, ...]
    switches: tuple[str, ...] = ()
    first_row: tuple[str, ...] = ()
    begun: str = ""
    places: tuple[int, ...] = ()
    method: str = ""
    flat: bool = False
    whole_tables: bool = False
    passed: str = ""
    attached: str = ""

    @property
    def filled(self) -> bool:
        """Whether calls fill the cache that the first one was passed, and return none."""
        return bool(self.begun) and not self.places

    @property
    def kept_inside(self) -> bool:
        """Whether the object keeps the cache itself."""
        return not (self.parameters or self.passed or self.attached)

    @property
    def of_itself(self) -> bool:
        """Whether the object keeps the cache in every call, whatever it is passed."""
        ways = self.parameters, self.switches, self.first_row, self.method, self.attached
        return not any(ways)

    @property
    def meanings(self) -> dict[str, str]:
        """Sentence about each parameter, by its key."""
        said = dict.fromkeys(self.parameters, FILLED if self.filled else MEANING)
        if self.kept_inside:
            said |= dict.fromkeys(self.first_row, BEFORE) | dict.fromkeys(self.switches, KEPT)
        found = {f"call.{name}": text for name, text in said.items()}
        holders = ("attribute", "constructor") if self.attached else ()  # the second may set it
        return found | {f"{of}.{self.attached}": ATTACHED for of in holders}

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of what gets a cache, as parameters are recorded."""
        return tuple(
            key for key, said in self.meanings.items() if said in {MEANING, FILLED, ATTACHED}
        )
