"""anoco-edge station backup and restore: a copy of a whole station, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.cli.commands.station import ConfigArgument
from anoco_edge.cli.console import emit_json, note, out, plural
from anoco_edge.cli.options import JsonOption
from anoco_edge.text.plain_text import plain_text


def backup(
    config: ConfigArgument,
    file: Annotated[Path, typer.Argument(help="File of the new backup (NAME.tar).")],
    all_pictures: Annotated[
        bool, typer.Option("--all-pictures", help="Keep every picture, not only pinned ones.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Copy a whole station into one file, while it runs: data bases, configuration, bundles, keys.

    The file holds the secrets of the station; only its owner may read it.
    """
    from anoco_edge.station.backup.writing import back_up

    made = back_up(config, file, all_pictures=all_pictures, say=note)
    size = sum(each.size for each in made.files)
    if json_:
        values = {"station": made.station, "made": made.made, "bytes": size}
        emit_json({**values, "files": [each.path for each in made.files]})
    else:
        text = f"{file}: {plural(len(made.files), 'file')} of {made.station}, {size / 1e6:.1f} MB"
        out.print(plain_text(text), soft_wrap=True, markup=False)


def restore(
    file: Annotated[Path, typer.Argument(help="File of a backup.")],
    folder: Annotated[Path, typer.Argument(help="Folder for station.toml and all the rest.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a folder, which is kept under another name.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Bring a station back from a backup: all of it, after every file was checked, or nothing."""
    from anoco_edge.station.backup.restoring import restore as restore_station

    done = restore_station(file, folder, force=force)
    if json_:
        before = None if done.before is None else str(done.before)
        values = {"config": str(done.config), "station": done.backup.station}
        emit_json({**values, "made": done.backup.made, "before": before})
        return
    if done.before is not None:
        note(f"what was there is now {done.before}")
    text = f"{done.backup.station} as it was at {done.backup.made}; start it with: "
    text += f"anoco-edge serve {done.config}"
    out.print(plain_text(text), soft_wrap=True, markup=False)
