"""Build settings of the documentation: MyST Markdown, executed code cells, the furo theme."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import write_reference  # noqa: E402  (found beside this file, not installed)
from raw_tables import warn_of_raw_tables  # noqa: E402  (likewise)

from mha_parity import __version__  # noqa: E402  (the path above comes first)

project = "mha-parity"
author = "the mha-parity developers"
copyright = author  # noqa: A001  (the name that Sphinx reads)
release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "generated/*.part.md"]
html_theme = "furo"
html_title = "mha-parity"
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# A cell that raises fails the build: what the pages show has run.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
# Markdown that a cell puts out may have tables, which the default does not know.
nb_render_markdown_format = "gfm"
autodoc_typehints = "description"
napoleon_use_ivar = True
autodoc_typehints_description_target = "documented_params"
suppress_warnings = ["mystnb.unknown_mime_type"]

write_reference(HERE / "generated")


def setup(app: Sphinx) -> None:
    """Let the build fail where a table is shown as text."""
    app.connect("doctree-resolved", warn_of_raw_tables)
