"""The application, made from one table of commands in the order in which they are used.

A start imports the module of the command that was typed and no other: together they take longer to
import than some commands take to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anoco_edge import __version__
from anoco_edge.cli.option_groups import expand_groups
from anoco_edge.cli.options import check_number, example, fill_in_help
from anoco_edge.text.plain_text import plain_text


@dataclass(frozen=True)
class Command:
    """A command: its name after `anoco-edge`, its function, and the example in its help."""

    name: str
    function: str
    """Its module in `cli.commands` and the function there: `export.export`."""
    arguments: str
    """What the example passes to the command."""

    @property
    def run(self) -> Callable[..., None]:
        """The function, whose module is imported now."""
        module, function = self.function.split(".")
        run: Callable[..., None] = getattr(
            import_module(f"anoco_edge.cli.commands.{module}"), function
        )
        return run


GROUPS = {
    "references": "List, remove, undo or prune references.",
    "product": "Show or change the settings of a product.",
    "station": "Check a station on a line; its users, its audit and its backups.",
}
"""Commands of two words, such as `references list`: the first word, and what it is about."""

COMMANDS = (
    Command("demo", "demo.demo", "--out demo-out"),
    Command("backbones", "backbones.backbones", ""),
    Command("export", "export.export", "--backbone efficientnet-lite0 --refs good/ --shots 4"),
    Command("build", "build.build", "line.anoco"),
    Command("enroll", "enroll.enroll", "line.anoco good/*.png --roi 40,40,560,400"),
    Command(
        "calibrate", "calibrate.calibrate", "line.anoco good/ --false-reject 0.01 --out calibration"
    ),
    Command("tune", "tune.tune", "line.anoco more-good/"),
    Command("infer", "infer.infer", "line.anoco parts/ --out out"),
    Command("serve", "serve.serve", "station.toml"),
    Command("replay", "replay.replay", "press-3-19c2f0a1b2c-000042"),
    Command("package", "package.package", "line.anoco --single-file line.onnx"),
    Command("bench", "bench.bench", "hazelnut.anoco --profile --max-p99 100"),
    Command("eval", "eval.eval_", "mvtec/ --backbone efficientnet-lite0 --shots 1,4 --seeds 3"),
    Command("info", "info.info", "line.anoco"),
    Command("verify", "verify.verify", "line.anoco"),
    Command("sign", "sign.sign", "line.anoco --key engineer.key"),
    Command("doctor", "doctor.doctor", ""),
    Command("device-report", "device_report.device_report", "line.anoco"),
    Command("references list", "references.list_", "line.anoco"),
    Command("references remove", "references.remove", "line.anoco scratched.png"),
    Command("references undo", "references.undo", "line.anoco"),
    Command("references prune", "references.prune", "line.anoco"),
    Command("product list", "product.list_", "line.anoco"),
    Command("product set", "product.set_", "line.anoco --roi 40,40,560,400"),
    Command("station check", "station.check", "station.toml"),
    Command("station users", "station_people.users", "station.toml --add mia --role engineer"),
    Command("station audit", "station_people.audit", "station.toml --verify"),
    Command("station backup", "station_backup.backup", "station.toml press-3.tar"),
    Command("station restore", "station_backup.restore", "press-3.tar restored/"),
)


class _SafeGroup(TyperGroup):
    """A group of commands that checks numbers and prints no control characters.

    Typer's own complaints repeat what was typed, which a shell may have put together from file
    names. This class makes them harmless before Typer prints them.
    """

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _harmless_complaints():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _harmless_complaints():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, _SafeGroup):
            command.invoke = partial(_with_checked_numbers, type(command).invoke, command)  # type: ignore[method-assign]
            command.format_help = partial(_with_names, type(command).format_help, command)  # type: ignore[method-assign]
            if ctx.resilient_parsing:  # a shell completes options, and some show their help texts
                fill_in_help(command)
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


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"anoco-edge {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Few-shot visual inspection: teach it a few good parts, then let it watch the line."""


def make_app(typed: Sequence[str] = ()) -> typer.Typer:
    """Return the application for what was typed after `anoco-edge`.

    It has the command that the first word names, or those of the group; all of them where the first
    word is neither, as for --help, and none for --version.

    >>> [group.name for group in make_app(["product", "list"]).registered_groups]
    ['product']
    """
    app = typer.Typer(
        name="anoco-edge",
        cls=_SafeGroup,
        help="Few-shot visual inspection: teach it a few good parts, then let it watch the line.",
        epilog="Start with: anoco-edge demo",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    groups: dict[str, typer.Typer] = {}
    for command in _commands_for(typed):
        *group, name = command.name.split()
        parent = groups.setdefault(group[0], _group(group[0])) if group else app
        text = example(f"anoco-edge {command.name} {command.arguments}".rstrip())
        parent.command(name, epilog=text)(expand_groups(command.run))
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name, cls=_SafeGroup)
    return app


def _group(name: str) -> typer.Typer:
    return typer.Typer(help=GROUPS[name], no_args_is_help=True)


def _commands_for(typed: Sequence[str]) -> Sequence[Command]:
    if typed[:1] == ["--version"]:
        return ()
    meant = [command for command in COMMANDS if command.name.split()[0] in typed[:1]]
    return meant or COMMANDS
