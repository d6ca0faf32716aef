"""Sphinx configuration: `make docs` builds the pages with warnings as errors."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `names_linked`

project = "pyg_incremental"
author = "pyg_incremental authors"
copyright = f"2026, {author}"
release = installed_version("pyg-incremental")
version = release

extensions = [
    "myst_parser",
    "names_linked",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["outputs.css"]
html_title = f"{project} {release}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# A name between single backticks, as in docstrings, leads to what it names, if there is one.
default_role = "py:obj"
maximum_signature_line_length = 88

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# The drop-in layers extend those of PyG, whose docstrings are PyG's own pages.
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False

# Links into other projects need their inventories from the network. A build without one must not
# differ in its warnings, so they are asked for: by Read the Docs, or by this variable.
intersphinx_mapping = {}
if os.environ.get("READTHEDOCS") or os.environ.get("PYG_INCREMENTAL_DOCS_ONLINE"):
    intersphinx_mapping = {
        "numpy": ("https://numpy.org/doc/stable", None),
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "torch_geometric": ("https://pytorch-geometric.readthedocs.io/en/latest", None),
    }
