"""Sphinx's settings. build.py stages the pages and sets the variables that are read here."""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import Any

import gpuscan

logging.getLogger("gpuscan").setLevel(logging.WARNING)

project = "gpuscan"
author = "The gpuscan developers"
release = version = gpuscan.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
root_doc = "index"
exclude_patterns = ["examples", "gallery/*.md5", "gallery/*.json"]
suppress_warnings = ["config.cache"]

# ----- Pages

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# `name` in a docstring is code, and a link where it is a name of the library's.
default_role = "py:obj"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what each argument takes
autodoc_preserve_defaults = True
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Documented where they are not installed, too.
autodoc_mock_imports = [name for name in ("torch", "jax", "dask", "scipy") if importlib.util.find_spec(name) is None]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ----- Links

# Links to other sites are checked by script/docs --external.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"http://(localhost|127\.0\.0\.1).*"]

# ----- The gallery

# The pixels of the longer side of a picture that an example wrote.
PICTURE_SIZE = 1200
_shown: set[Path] = set()


def pictures_written(block: object, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Show the pictures that an example has written to demo-output, scaled down, the first one first."""
    lines = []
    written = Path(variables["src_file"]).parent.glob("demo-output/*.png")
    for path in sorted(written, key=lambda path: path.stat().st_mtime_ns):
        if path not in _shown:
            _shown.add(path)
            target = next(variables["image_path_iterator"])
            with Image.open(path) as picture:
                picture.thumbnail((PICTURE_SIZE, PICTURE_SIZE))
                picture.save(target)
            lines.append(target)
    return figure_rst(lines, conf["src_dir"])


if os.environ.get("GPUSCAN_DOCS_GALLERY") == "1":
    from PIL import Image
    from sphinx_gallery.scrapers import figure_rst

    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": ["examples"],
        "gallery_dirs": ["gallery"],
        "filename_pattern": r"\.py$",
        "abort_on_example_error": True,
        "image_scrapers": (pictures_written,),
        "reset_modules": (),  # its own resets import matplotlib, which no example needs
        "download_all_examples": False,
        "show_memory": False,
        "min_reported_time": 1e9,
        "show_signature": False,
        "copyfile_regex": "",
        "remove_config_comments": True,
        "write_computation_times": False,
    }

# ----- Cells that run on the visitor's GPU


def with_cells(app: Any, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Let the examples of the how-to pages run in the browser."""
    if page.startswith("how-to/"):
        app.add_js_file("python/cells.js", type="module")
        app.add_css_file("python/style.css")


def setup(app: Any) -> None:
    """Connect Sphinx with what is defined here."""
    app.connect("html-page-context", with_cells)


# ----- Looks

html_theme = "furo"
html_title = f"gpuscan {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#1d4ed8", "color-brand-content": "#1d4ed8"},
    "dark_css_variables": {"color-brand-primary": "#93c5fd", "color-brand-content": "#93c5fd"},
}
