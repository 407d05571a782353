"""A file that is given without the name of a function or a class in it: which is likely meant."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mha_parity.targets.notebook import codes, python_of

ATTENTION = re.compile(r"attention|attn|mha|sdpa|head", re.IGNORECASE)
HELPER = re.compile(r"mask|config|args|out(put)?$|batch$", re.IGNORECASE)
KINDS = (ast.FunctionDef, ast.ClassDef)


def public_names(path: Path) -> list[str]:
    """Return the public functions and classes of a Python file or notebook, which is not run."""
    try:
        is_notebook = path.suffix == ".ipynb"
        texts = map(python_of, codes(path)) if is_notebook else [path.read_text(encoding="utf-8")]
        body = ast.parse("\n".join(texts)).body
    except (OSError, ValueError, SyntaxError):  # said once something in it is named
        return []
    return [each.name for each in body if isinstance(each, KINDS) and not each.name.startswith("_")]


def likeliest(names: list[str]) -> str:
    """Return the last name that speaks of attention and is no helper's: helpers come first."""
    own = [name for name in names if not HELPER.search(name)] or names
    return next((name for name in reversed(own) if ATTENTION.search(name)), own[-1])


def with_only_name(target: str) -> str:
    """Return a target; a file that defines one public name alone gets that name."""
    path = Path(target.strip()).expanduser()
    names = public_names(path) if path.suffix in {".py", ".ipynb"} and path.is_file() else []
    return f"{target.strip()}:{names[0]}" if len(names) == 1 else target
