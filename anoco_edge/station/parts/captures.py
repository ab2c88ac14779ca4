"""The captures of a station's products: the bundle and the product of it that judge each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anoco_edge.bundle import Bundle, Product
from anoco_edge.errors import UsageError
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.judge.messages import CaptureSpec


class UnknownCaptureError(UsageError):
    """A product number or a capture that the station does not have."""


@dataclass(frozen=True)
class CapturePlace:
    """A capture of a product of the line, and where its product lies in a bundle."""

    number: int
    name: str
    capture: int
    camera: str
    spec: CaptureSpec

    def bundle(self) -> Bundle:
        """Open the bundle that judges this capture."""
        return Bundle.open(self.spec.bundle)

    def product(self, bundle: Bundle) -> Product | None:
        """Return the product as it is now; None where it was not taught yet."""
        names = bundle.products()
        if self.spec.product is None and not names:
            return None
        if self.spec.product is not None and self.spec.product not in names:
            return None
        return bundle.product(self.spec.product)

    def require_product(self, bundle: Bundle) -> Product:
        """Return the product as it is now, which must have been taught."""
        found = self.product(bundle)
        if found is None:
            raise UsageError(
                f"product {self.name} was not taught yet", hint="teach it pictures of good parts"
            )
        return found


def find_capture(config: StationConfig, base: Path, number: int, capture: int) -> CapturePlace:
    """Return a capture by the number of its product and its own, which counts from 0."""
    for product in config.products:
        if product.number == number and 0 <= capture < len(product.captures):
            table = product.captures[capture]
            return CapturePlace(number, product.name, capture, table.camera, table.spec(base))
    raise UnknownCaptureError(
        f"the station has no capture {capture} of product {number}",
        hint="look at its products; captures count from 0",
    )


def numbers_of_same(config: StationConfig, base: Path, place: CapturePlace) -> list[int]:
    """Return the numbers of all products that the product of this capture judges."""
    here = (Path(place.spec.bundle).absolute(), place.spec.product)
    found = []
    for product in config.products:
        specs = [table.spec(base) for table in product.captures]
        if here in [(Path(spec.bundle).absolute(), spec.product) for spec in specs]:
            found.append(product.number)
    return found
