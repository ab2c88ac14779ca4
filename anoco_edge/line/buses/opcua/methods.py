"""The methods of OPC 40100-1 that list recipes and results, and what all methods have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from anoco_edge.errors import missing
from anoco_edge.line.buses.opcua.records import RecentResults, internal_id
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.words.constants import Reason

try:
    from asyncua import ua
except ImportError:
    raise missing("asyncua", "opcua", "to serve OPC UA") from None

_FILTERS = (
    *("ResultState", "MeasId", "PartId", "ExternalRecipeId", "InternalRecipeId"),
    *("ExternalConfigurationId", "InternalConfigurationId", "ProductId", "JobId"),
)
"""The arguments of GetResultListFiltered that say which results are wanted, in their order."""
_FALSE, _TRUE = 0, 1  # of TriStateBooleanDataType; 2 does not care


def error_code(number: int) -> ua.Variant:
    """Return the value of an argument named Error."""
    return ua.Variant(number, ua.VariantType.Int32)


def identifier(asked: Any) -> str:
    """Return the Id of a structure; empty where a client left it out."""
    return str(getattr(asked, "Id", "") or "")


class RecordMethods:
    """Answers what clients ask about recipes and results. Handles, which only the transfer of files
    needs, are 0."""

    def __init__(self, products: Mapping[str, int], results: RecentResults) -> None:
        self._products, self._results = products, results

    async def result_by_id(self, asked: Any, *_: object) -> list[Any]:
        """Return the result of a part; with an error there is an empty one."""
        found = self._results.by_id(identifier(asked))
        if found is None:
            empty = ua.Variant(ua.ResultDataType())
            return [_number(0), empty, error_code(-int(Reason.NOT_FOUND))]
        return [_number(0), ua.Variant(found.data()), error_code(0)]

    async def list_results(self, *asked: Any) -> list[Any]:
        """Return the results that fit, the newest first."""
        wanted = dict(zip(_FILTERS, asked, strict=False))
        most, first = asked[len(_FILTERS) : len(_FILTERS) + 2]
        found = (result.data() for result in self._results.matching(wanted))
        return _page(found, most, first)

    def list_recipes(self, prepared: PreparedProduct | None, *asked: Any) -> list[Any]:
        """Return the recipes with this external name that are prepared, or are not."""
        external, _, state, most, first, *_ = asked
        found = []
        for name, number in self._products.items():
            is_prepared = prepared is not None and prepared.number == number
            if identifier(external) not in ("", name, str(number)):
                continue
            if state in (_FALSE, _TRUE) and bool(state) != is_prepared:
                continue
            found.append(internal_id(prepared if is_prepared else None, number))
        return _page(found, most, first)


def _page(found: Iterable[Any], most: int, first: int) -> list[Any]:
    """Return at most so many of what was found, or all for 0, and whether these are the last."""
    rest = islice(found, first, None)
    shown = list(islice(rest, most)) if most else list(rest)
    complete = next(iter(rest), None) is None
    items = ua.Variant(shown, ua.VariantType.ExtensionObject, is_array=True)
    return [ua.Variant(complete), _number(len(shown)), _number(0), items, error_code(0)]


def _number(value: int) -> ua.Variant:
    return ua.Variant(value, ua.VariantType.UInt32)
