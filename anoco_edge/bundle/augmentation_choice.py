"""What `auto` compared when it chose the augmentation of a product, as product.json records it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

ChoiceMethod = Literal[
    "none yet", "one reference", "references against each other", "held-out pictures"
]
Energy = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class AugmentationChoice(BaseModel):
    """The evidence for `tta` of a product whose augmentation is `auto`.

    Pairs of pictures of good parts were compared. What was chosen is `tta` of the product. Without
    this record a product has the level that a person asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: ChoiceMethod = "none yet"
    plain: tuple[Energy, ...] = ()
    """The mean energy of one picture of each pair against the other, as both lie."""
    turned: tuple[Energy, ...] = ()
    """The same with the other at the angle that fits best."""
    ratio: Energy | None = None
    """The lower quartile of turned / plain; None where nothing was compared."""
    limit: Energy | None = None
    """Rotations are chosen where the ratio is below this."""
    words: str = ""
    """The evidence and the decision in one sentence."""

    @model_validator(mode="after")
    def _energies_in_pairs(self) -> AugmentationChoice:
        if len(self.plain) != len(self.turned):
            raise ValueError("every pair has an energy as it lies and one turned")
        return self
