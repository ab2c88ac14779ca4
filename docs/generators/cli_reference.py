"""The reference of the command line, written from the application itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from anoco_edge.cli.app import COMMANDS, GROUPS, make_app
from anoco_edge.cli.options import fill_in_help

_PLACEHOLDERS = {
    "<int range>": "N",
    "<int>": "N",
    "<float range>": "X",
    "<float>": "X",
    "<str>": "TEXT",
    "<path>": "PATH",
    "<list[int]>": "N",
    "<list[str]>": "TEXT",
}
"""What stands for the value of an option, by the name that Typer gives its type."""

_NOTE = re.compile(r"\s*\[((?:default|required|x|\d|env)[^\]]*)\]$")


def markdown() -> str:
    """Return a section for every command: what it does, an example, arguments and options."""
    root = typer.main.get_command(make_app())
    lines = [f"`anoco-edge --version` prints the version. {_completion()}", ""]
    groups: set[str] = set()
    for command in COMMANDS:
        group = command.name.split()[:-1]
        if group and group[0] not in groups:
            groups.add(group[0])
            lines += [f"## {group[0]}", "", GROUPS[group[0]], ""]
        found: Any = root
        for word in command.name.split():
            found = found.commands[word]
        lines += _section(found, command.name, "###" if group else "##")
    return "\n".join(lines)


def _completion() -> str:
    return (
        "`anoco-edge --install-completion` teaches your shell (bash, zsh or fish) to complete "
        "commands and options with the Tab key; `--show-completion` prints what it would add."
    )


def _section(command: Any, name: str, heading: str) -> Iterator[str]:
    fill_in_help(command)
    context = typer.Context(command, info_name=f"anoco-edge {name}")
    example = command.epilog.removeprefix("Example: ")
    yield from (f"{heading} {name}", "", _paragraphs(command.help), "")
    yield from ("```console", f"$ {example}", "```", "")
    arguments = list(_rows(command, context, "argument"))
    if arguments:
        yield from ("| argument | |", "|---|---|", *arguments, "")
    options = list(_rows(command, context, "option"))
    if options:
        yield from ("| option | | default, limits |", "|---|---|---|", *options, "")


def _rows(command: Any, context: Any, kind: str) -> Iterator[str]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or parameter.param_type_name != kind:
            continue  # hidden
        usage, text = record
        note = _NOTE.search(text)
        text = _cell(text[: note.start()] if note else text)
        if kind == "argument":
            yield f"| `{parameter.metavar or usage.split(' ')[0].upper()}` | {text} |"
        else:
            for type_, placeholder in _PLACEHOLDERS.items():
                usage = usage.replace(type_, placeholder)
            usage = re.sub(r"<([^<>]+\|[^<>]+)>", r"\1", usage)  # the values to choose from
            limits = _limits(note[1], parameter) if note else ""
            yield f"| `{usage}` | {text} | {limits} |"


def _limits(note: str, parameter: Any) -> str:
    """Say the default and the range of an option; Typer gives both in brackets.

    >>> from types import SimpleNamespace
    >>> _limits("default: 1.0; 0<=x<=3600", SimpleNamespace(secondary_opts=[]))
    '`1.0`; 0 to 3600'
    """
    words = []
    for part in (part.strip() for part in note.split(";")):
        if part.startswith("default: "):
            default = part.removeprefix("default: ")
            words.append(f"`--{default}`" if parameter.secondary_opts else f"`{default}`")
        elif both := re.fullmatch(r"(\S+)<=x<=(\S+)", part):
            words.append(f"{both[1]} to {both[2]}")
        else:
            words.append(part.replace("x>=", "at least ").replace("x<=", "at most "))
    return "; ".join(words)


def _paragraphs(text: str) -> str:
    return "\n\n".join(_prose(part) for part in text.strip().split("\n\n"))


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")


def _prose(text: str) -> str:
    """Return a text on one line, with the options that it names as code."""
    return re.sub(r"(?<![`\w-])(--[a-z][a-z-]*[a-z])", r"`\1`", " ".join(text.split()))
