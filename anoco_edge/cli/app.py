"""All commands, in the order of a part's life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anoco_edge import __version__
from anoco_edge.cli.commands import (
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
from anoco_edge.cli.commands import eval as eval_
from anoco_edge.cli.options import check_number, fill_in_help
from anoco_edge.text.plain_text import plain_text


class _Commands(TyperGroup):
    """Typer's own complaints repeat what was typed, which a shell may have put together of file
    names: made harmless here, before Typer prints them."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _harmless_complaints():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _harmless_complaints():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, _Commands):
            command.invoke = partial(_with_checked_numbers, type(command).invoke, command)  # type: ignore[method-assign]
            command.format_help = partial(_with_names, type(command).format_help, command)  # type: ignore[method-assign]
        return command


def _with_checked_numbers(invoke: Callable[[Any, Any], Any], command: Any, ctx: Any) -> Any:
    for option in command.params:
        value = ctx.params.get(option.name)
        for number in value if isinstance(value, list | tuple) else [value]:
            check_number(number, option.opts[0])
    return invoke(command, ctx)


def _with_names(format_help: Callable[..., None], command: Any, *arguments: Any) -> None:
    fill_in_help(command)
    format_help(command, *arguments)


@contextmanager
def _harmless_complaints() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "message"):
            error.message = plain_text(str(error.message))
        raise


app = typer.Typer(
    name="anoco-edge",
    cls=_Commands,
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
app.add_typer(references.app, name="references", cls=_Commands)
app.add_typer(product.app, name="product", cls=_Commands)
