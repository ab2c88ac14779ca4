"""Shows who signed a bundle, and when."""

from __future__ import annotations

from anoco_edge.bundle.signatures.checking import SignedState
from anoco_edge.cli.console import out, plural
from anoco_edge.text.plain_text import plain_text


def signature_values(state: SignedState) -> dict[str, object]:
    """Return a signature as JSON shows it."""
    return {
        "key": state.key.number,
        "time": state.comment.time,
        "signer": state.comment.signer,
        "after": state.comment.after,
        "generations": dict(state.comment.generations),
        "files": sorted(state.statement.files),
    }


def show_signature(state: SignedState) -> None:
    """Print a signature in one line."""
    who = f"station {state.comment.signer}, " if state.comment.signer else ""
    text = f"{state.path}: {plural(len(state.statement.files), 'file')}, signed by {who}key "
    text += f"{state.key.number} at {state.comment.time}"
    out.print(plain_text(text), soft_wrap=True, markup=False)
