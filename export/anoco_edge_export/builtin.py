"""Write the files of the built-in backbone again, from the recipe as it is now.

Run it from a source tree in which the package is installed in editable mode, after a change of the
recipe or of the export, and commit what it writes:

    python -m anoco_edge_export.builtin

tests/export/test_builtin.py fails when the files no longer fit the recipe.
"""

from __future__ import annotations

import sys

from anoco_edge.bundle.builtin import BUILTIN_BACKBONE, BUILTIN_FOLDER
from anoco_edge_export.bundle import ExportedBundle, export_bundle


def write_builtin() -> ExportedBundle:
    """Export the built-in backbone with default options into the package `anoco_edge`."""
    return export_bundle(
        BUILTIN_BACKBONE,
        BUILTIN_FOLDER,
        overwrite=True,
        progress=lambda text: print(text, file=sys.stderr),  # noqa: T201 (a program of its own)
    )


if __name__ == "__main__":
    write_builtin()
