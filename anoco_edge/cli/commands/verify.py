"""anoco-edge verify: whether every file of a bundle is as it was written, and who signed it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import emit_json, out, progress, warn
from anoco_edge.cli.options import BundleArgument, JsonOption
from anoco_edge.cli.views.signature import show_signature, signature_values
from anoco_edge.text.plain_text import plain_text

if TYPE_CHECKING:
    from anoco_edge.bundle.signatures.checking import SignedState


def verify(
    bundle: BundleArgument,
    key: Annotated[
        list[Path] | None,
        typer.Option(help="Public key of minisign, one of which must have signed (repeatable)."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Hash every file again; the first that is wrong is named (exit 4).

    With a key, the bundle must also be exactly what that key signed.
    """
    opened = Bundle.open(bundle)
    state = _signature(opened, key) if key else None
    with progress("verifying") as step:
        checked = []
        for path in opened.verify():
            checked.append(str(path.relative_to(opened.path)))
            step(path.name)
    strangers = [str(p.relative_to(opened.path)) for p in opened.strangers()]
    for name in strangers:
        warn(f"{name} does not belong to the bundle")
    if json_:
        values = {"bundle": str(opened.path), "verified": checked, "strangers": strangers}
        signed = {"signature": signature_values(state)} if state else {}
        emit_json({**values, **signed})
        return
    text = f"{opened.path}: {len(checked)} files, all as they were written"
    out.print(plain_text(text), soft_wrap=True, markup=False)
    if state is not None:
        show_signature(state)


def _signature(bundle: Bundle, keys: list[Path]) -> SignedState:
    from anoco_edge.bundle.signatures.checking import check_signature
    from anoco_edge.bundle.signatures.key_files import read_public_key

    return check_signature(bundle.path, [read_public_key(path) for path in keys])
