"""anoco-edge replay: compute the verdict of an old part again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anoco_edge.cli.console import emit_json
from anoco_edge.cli.options import EngineOption, JsonOption

EXIT = {"same": 0, "not computed": 1, "different": 5}


def replay(
    uid: Annotated[str, typer.Argument(help="The part, by its uid in line.db.")],
    station: Annotated[
        Path, typer.Option(help="Configuration of the station (station.toml).")
    ] = Path("station.toml"),
    engine: EngineOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Compute the verdict of an old part again, from its picture, bundle, generation and revision.

    Exit 0: it is the same; 5: it is another one; 1: it cannot be computed, and why.
    """
    from anoco_edge.cli.views.replay import replay_values, show_replay
    from anoco_edge.line.config.station_config import read_config
    from anoco_edge.line.replay import replay as replay_part

    folder = station.parent / read_config(station).station.folder
    done = replay_part(folder, station.parent, uid, engine=engine)
    if json_:
        emit_json(replay_values(done))
    else:
        show_replay(done)
    if done.state != "same":
        raise typer.Exit(EXIT[done.state])
