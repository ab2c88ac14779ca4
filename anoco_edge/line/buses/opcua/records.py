"""Recipes and results of OPC 40100-1 as nodes and values of OPC UA."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from anoco_edge.errors import missing
from anoco_edge.line.core.effects import PartRecord
from anoco_edge.line.core.events import PreparedProduct

try:
    from asyncua import Node, ua
except ImportError:
    raise missing("asyncua", "opcua", "to serve OPC UA") from None

MOST_RESULTS = 100
"""Results that a client may ask for again; all others are in the data base."""
_RESULT_STATES = {"good": 1, "anomalous": 1, "no-verdict": 3}  # Completed, Aborted
_KEPT = {"ExternalId", "InternalId", "IsPrepared", "LastModified", "Prepare", "Unprepare"}
"""What stays of a recipe; files and linked products do not exist."""


def now() -> datetime:
    """Return the time of day in UTC."""
    return datetime.now(timezone.utc)


def internal_id(product: PreparedProduct | None, number: int = 0) -> Any:
    """Return what names a product inside the station: its number, and what is prepared of it."""
    number = number if product is None else product.number
    return ua.RecipeIdInternalDataType(Id=str(number or ""), **_version(product))


def external_id(name: str, product: PreparedProduct | None) -> Any:
    """Return what names a product outside the station; generation and hash are known as soon as it
    was prepared."""
    return ua.RecipeIdExternalDataType(Id=name, **_version(product))


def _version(product: PreparedProduct | None) -> dict[str, object]:
    if product is None:
        return {}
    return {
        "Version": str(product.generation),
        "Hash": bytes.fromhex(product.sha256),
        "HashAlgorithm": "SHA-256",
    }


@dataclass(frozen=True)
class OpcuaResult:
    """The result of a part with the name of its product and the time at which it came."""

    record: PartRecord
    product: str
    at: datetime

    def fields(self) -> dict[str, object]:
        """Return the fields that the event and the data type of a result have in common."""
        record = self.record
        total = timedelta(milliseconds=record.total_ms)
        times = ua.ProcessingTimesDataType(
            StartTime=self.at - total,
            EndTime=self.at,
            AcquisitionDuration=float(record.acquire_ms),
            ProcessingDuration=float(record.total_ms - record.acquire_ms),
        )
        return {
            "ResultId": ua.ResultIdDataType(Id=record.uid),
            "IsPartial": False,
            "IsSimulated": record.simulated,
            "ResultState": _RESULT_STATES[record.verdict],
            "PartId": ua.PartIdDataType(Id=record.part_code),
            "ExternalRecipeId": external_id(self.product, record.product),
            "InternalRecipeId": internal_id(record.product),
            "InternalConfigurationId": ua.ConfigurationIdDataType(Id=""),
            "JobId": ua.JobIdDataType(Id=record.uid),
            "CreationTime": self.at,
            "ProcessingTimes": times,
        }

    @property
    def content(self) -> list[str]:
        """Verdict and reason."""
        return [self.record.verdict, self.record.reason.name]

    def data(self) -> Any:
        """Return the result as the data type of the standard."""
        content = [ua.Variant(text) for text in self.content]
        return ua.ResultDataType(**self.fields(), ResultContent=content)


class RecentResults:
    """The last results, and what a client may ask about them."""

    def __init__(self) -> None:
        self._kept: deque[OpcuaResult] = deque(maxlen=MOST_RESULTS)

    def add(self, result: OpcuaResult) -> None:
        """Keep a result; the oldest goes."""
        self._kept.append(result)

    def by_id(self, uid: str) -> OpcuaResult | None:
        """Return the result of a part; None if there is none any more."""
        return next((each for each in self._kept if each.record.uid == uid), None)

    def matching(self, wanted: Mapping[str, object]) -> Iterator[OpcuaResult]:
        """Return the results with these fields, the newest first. An Id or a state that is empty
        is any."""
        for result in reversed(self._kept):
            fields = {name: _plain(value) for name, value in result.fields().items()}
            asked = {name: _plain(value) for name, value in wanted.items()}
            if all(fields.get(name) == value for name, value in asked.items() if value):
                yield result


def _plain(value: Any) -> object:
    """Return the Id of a structure, and anything else as it is."""
    return getattr(value, "Id", value) or ""


class RecipeNodes:
    """The recipes of a station: an object below Recipes for each product, by its name."""

    def __init__(self, products: Mapping[str, int]) -> None:
        self._products = products
        self._nodes: dict[tuple[int, str], Node] = {}
        self._prepared: PreparedProduct | None = None

    async def build(
        self,
        folder: Node,
        kind: Node,
        name_of: Callable[[str], tuple[ua.NodeId, ua.QualifiedName]],
        link: Callable[[Node, str, int], None],
    ) -> None:
        """Make the objects; `link` gives a method of a recipe to a product."""
        for name, number in self._products.items():
            recipe = await folder.add_object(*name_of(name), objecttype=kind.nodeid)
            for child in await recipe.get_children():
                what = (await child.read_browse_name()).Name
                if what not in _KEPT:
                    await child.delete(recursive=True)
                elif what in ("Prepare", "Unprepare"):
                    link(child, what, number)
                else:
                    self._nodes[number, what] = child
            await self._write(name, number, None)

    async def show(self, product: PreparedProduct | None) -> bool:
        """Show which product is prepared; True if it is another one, or another generation."""
        if product == self._prepared:
            return False
        names = {number: name for name, number in self._products.items()}
        if self._prepared is not None:
            number = self._prepared.number
            await self._nodes[number, "IsPrepared"].write_value(False)
        if product is not None:
            await self._write(names[product.number], product.number, product)
        self._prepared = product
        return product is not None

    async def _write(self, name: str, number: int, product: PreparedProduct | None) -> None:
        values = {
            "ExternalId": external_id(name, product),
            "InternalId": internal_id(product, number),
            "IsPrepared": product is not None,
            "LastModified": now(),
        }
        for what, value in values.items():
            await self._nodes[number, what].write_value(value)
