"""The cost of augmentation, shown before it is accepted."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import note
from anoco_edge.engines import EngineSettings, open_engine
from anoco_edge.errors import UsageError
from anoco_edge.teaching import NewPicture, Settings, TileSettings, measure_augmentation_cost
from anoco_edge.teaching.augmentation_cost import augmentation_level
from anoco_edge.teaching.drafts import asked_level


def accept_cost(
    bundle: Bundle,
    product: str | None,
    settings: Settings,
    new: Sequence[str] = (),
    *,
    engine: str = "auto",
    device: str = "CPU",
    yes: bool = False,
) -> None:
    """Say what augmentation costs and ask whether to go on; without a terminal, demand --yes.

    Where the product is augmented already, the question is asked about tiles only, and the cost of
    more references is noted. Tiles of a product without references are planned for the size of
    the first of the `new` pictures.
    """
    known = product or (bundle.product().name if bundle.products() else None)
    old = bundle.product(known) if known in bundle.products() else None
    views = settings.fields.keys() & {"tta", "rotations", "flips"}
    asked = bool(views) or settings.tiles not in (None, TileSettings())
    # Where `auto` chooses, the cost is said once it has chosen.
    auto = asked_level(settings, old) == "auto"
    flips = settings.fields.get("flips", old.flips if old else False)
    none = auto or augmentation_level(settings, old) == "none"
    if (none and not flips) or not (asked or new):
        return
    picture = NewPicture.from_file(new[0]) if new else None
    cost = measure_augmentation_cost(
        bundle.manifest.input,
        open_engine(engine, bundle, EngineSettings(device=device)),
        settings,
        product=old,
        new=len(new),
        size=(picture.width, picture.height) if picture else None,
    )
    if cost is None:
        return
    note(cost.in_words())
    if yes or not asked:
        return
    if not sys.stdin.isatty():
        raise UsageError("this cost was not accepted", hint="accept it with --yes")
    typer.confirm("go on?", abort=True, err=True)
