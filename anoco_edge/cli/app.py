"""All commands, in the order of a part's life."""

from __future__ import annotations

from typing import Annotated

import typer

from anoco_edge import __version__
from anoco_edge.cli import (
    bench,
    build,
    calibrate,
    demo,
    device_report,
    doctor,
    enroll,
    export,
    infer,
    info,
    product,
    references,
)
from anoco_edge.cli import (
    eval as eval_,
)

app = typer.Typer(
    name="anoco-edge",
    help="Few-shot visual inspection: teach it a few good parts, then let it watch the line.",
    epilog="Start with: anoco-edge demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"anoco-edge {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Few-shot visual inspection: teach it a few good parts, then let it watch the line."""


for module in (
    demo,
    export,
    build,
    enroll,
    calibrate,
    infer,
    bench,
    eval_,
    info,
    doctor,
    device_report,
):
    module.register(app)
app.add_typer(references.app, name="references")
app.add_typer(product.app, name="product")
