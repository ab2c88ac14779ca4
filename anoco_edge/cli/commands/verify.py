"""anoco-edge verify: whether every file of a bundle is as it was written."""

from __future__ import annotations

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, out, progress, warn
from anoco_edge.cli.options import BundleArgument, JsonOption
from anoco_edge.text.plain_text import plain_text


def verify(bundle: BundleArgument, json_: JsonOption = False) -> None:
    """Hash every file again; the first that is wrong is named (exit 4)."""
    opened = Bundle.open(bundle)
    with progress("verifying") as step:
        checked = []
        for path in opened.verify():
            checked.append(str(path.relative_to(opened.path)))
            step(path.name)
    strangers = [str(p.relative_to(opened.path)) for p in opened.strangers()]
    for name in strangers:
        warn(f"{name} does not belong to the bundle")
    if json_:
        emit_json({"bundle": str(opened.path), "verified": checked, "strangers": strangers})
    else:
        text = f"{opened.path}: {len(checked)} files, all as they were written"
        out.print(plain_text(text), soft_wrap=True, markup=False)
