"""Sphinx settings: sphinx-build -W --keep-going -b html docs out"""

from pyacl import __version__

project = "pyacl"
author = "The pyacl maintainers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"pyacl {release}"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_rtype = False
# short names in annotations and docstrings (Backend, type, name) belong to several classes; they stay without a link
suppress_warnings = ["ref.python"]


def keep_colons(app, what, name, obj, options, lines):
    """Put an empty comment first, or napoleon takes the words before a colon in an attribute's text for its type."""
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]


def setup(app):
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
