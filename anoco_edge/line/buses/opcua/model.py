"""The address space of a station after OPC 40100-1, and beside it the table of words.

The types come from the OPC Foundation's nodeset, which lies beside this module (MIT license, in its
first lines). Optional parts of a VisionSystem that a station does not have are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from anoco_edge.errors import missing
from anoco_edge.line.buses.opcua.records import (
    OpcuaResult,
    RecentResults,
    RecipeNodes,
    external_id,
    internal_id,
    now,
)
from anoco_edge.line.buses.opcua.transitions import AUTOMATIC, MACHINE, states_of, transition_of
from anoco_edge.line.core.effects import PartRecord, StateChange
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Status
from anoco_edge.line.words.table import STATUS, Word

try:
    from asyncua import Node, Server, ua
except ImportError:
    raise missing("asyncua", "opcua", "to serve OPC UA") from None

NODESET = Path(__file__).parent / "nodesets/Opc.Ua.MachineVision.NodeSet2.xml.gz"
VISION = "http://opcfoundation.org/UA/MachineVision"
OURS = "urn:anoco-edge:line"
_KEPT = {
    "": {"RecipeManagement", "ResultManagement", "VisionStateMachine"},
    "RecipeManagement": {
        *("GetRecipeListFiltered", "PrepareRecipe", "Recipes", "UnprepareRecipe"),
    },
    "RecipeManagement/Recipes": set(),
    "ResultManagement": {"GetResultById", "GetResultListFiltered"},
    "VisionStateMachine": {
        *("AutomaticModeStateMachine", "CurrentState", "Halt", "Reset", "SelectModeAutomatic"),
    },
    "VisionStateMachine/AutomaticModeStateMachine": {
        *("CurrentState", "StartSingleJob", "StartContinuous", "Stop", "Abort", "SimulationMode"),
    },
}
"""What stays of each object of an instance."""
_EVENTS = {
    "JobStartedEventType": "VisionStateMachine",
    "AcquisitionDoneEventType": "VisionStateMachine",
    "ReadyEventType": "VisionStateMachine",
    "StateChangedEventType": "VisionStateMachine",
    "RecipePreparedEventType": "RecipeManagement",
    "ResultReadyEventType": "ResultManagement",
}
"""The events, and the object that sends each."""
_VARIANTS = {"bits": "UInt16", "uint16": "UInt16", "uint32": "UInt32", "ascii": "String"}
_WORDS = {word.name: word for word in STATUS}
Method = Callable[..., Awaitable[list[Any]]]


class VisionModel:
    """The nodes of one station. All calls are made in the loop of the server."""

    def __init__(self, server: Server, station: str, products: Mapping[str, int]) -> None:
        self._server, self._station = server, station
        self._names = {number: name for name, number in products.items()}
        self._recipes = RecipeNodes(products)
        self.results = RecentResults()
        self._events: dict[str, Any] = {}
        self._vision = self._ours = 0
        self._states: dict[str, ua.NodeId] = {}
        self._words: dict[str, Node] = {}
        self._shown: dict[str, object] = {}
        self._sending = asyncio.Lock()  # the events of one type share their fields

    async def build(self, methods: Mapping[str, Method], recipe: Mapping[str, Method]) -> None:
        """Make all nodes; `methods` are named by their path below the system, and those of a recipe
        get the number of its product."""
        server = self._server
        await server.import_xml(xmlstring=gzip.decompress(NODESET.read_bytes()).decode())
        self._vision = await server.get_namespace_index(VISION)
        self._ours = await server.register_namespace(OURS)
        base = server.nodes.base_object_type
        kind = await base.get_child([f"{self._vision}:VisionSystemType"])
        self._system = await server.nodes.objects.add_object(
            ua.NodeId(self._station, self._ours),
            ua.QualifiedName(self._station, self._ours),
            objecttype=kind.nodeid,
        )
        for path, kept in _KEPT.items():
            await self._prune(path, kept)
        for path, method in methods.items():
            server.link_method(await self._node(path), _checked(method))
        for name in ("VisionStateMachineType", "VisionAutomaticModeStateMachineType"):
            machine = await _subtype(base, name)
            for node in await machine.get_children():
                self._states[(await node.read_browse_name()).Name] = node.nodeid
        for path, name in ((MACHINE, State.PREOPERATIONAL.value), (AUTOMATIC, "")):
            await self._show_state(path, name)
        await self._add_words()
        await self._add_recipes(base, recipe)
        for name, path in _EVENTS.items():
            event = await _subtype(server.nodes.base_event_type, name)
            node = await self._node(path)
            self._events[name] = await server.get_event_generator(event, emitting_node=node)

    async def add_candidate(self, methods: Mapping[str, Method]) -> None:
        """Make the object that has the methods to take and to drop the candidate."""
        error = ua.Argument(Name="Error", DataType=ua.NodeId(ua.ObjectIds.Int32), ValueRank=-1)
        owner = await self._system.add_object(*self._own_name("Candidate"))
        for name, method in methods.items():
            names = self._own_name(f"Candidate/{name}")
            await owner.add_method(*names, _checked(method), [], [error])

    async def change_state(self, change: StateChange) -> None:
        """Show the states of both machines, and send the event of the transition."""
        outer, inner = states_of(change.after)
        await self._show_state(MACHINE, outer)
        await self._show_state(AUTOMATIC, inner)
        path, before, after, transition = transition_of(change)
        fields: dict[str, Any] = {"SourceNode": (await self._node(path)).nodeid}
        for field, name in (("FromState", before), ("ToState", after), ("Transition", transition)):
            fields |= {field: ua.LocalizedText(name), f"{field}/Id": self._states[name]}
        await self.send("StateChanged", transition, **fields)

    async def show(self, status: Status, product: PreparedProduct | None) -> None:
        """Write the words and the recipes that have changed."""
        for name, value in status.words().items():
            if self._shown.get(name) != value:
                self._shown[name] = value
                await self._words[name].write_value(value, _variant(_WORDS[name]))
        if await self._recipes.show(product) and product is not None:
            name = self._names[product.number]
            await self.send(
                "RecipePrepared",
                f"{name} {product.generation}",
                ExternalId=external_id(name, product),
                InternalId=internal_id(product),
            )

    async def announce(self, record: PartRecord) -> None:
        """Keep a result and send the event that it is there."""
        number = record.product.number if record.product else 0
        result = OpcuaResult(record, self._names.get(number, ""), now())
        self.results.add(result)
        text = " ".join(result.content)
        await self.send("ResultReady", text, **result.fields(), ResultContent=result.content)

    async def send(self, name: str, text: str, **fields: Any) -> None:
        """Send an event of the standard."""
        generator = self._events[f"{name}EventType"]
        async with self._sending:
            for field, value in fields.items():
                generator.event.add_property(field, value, _kind_of(value))
            generator.event.Message = ua.LocalizedText(text)
            await generator.trigger()

    async def _show_state(self, machine: str, name: str) -> None:
        """Show the state of a machine; a machine that is not active has none."""
        good = ua.StatusCodes.Good if name else ua.StatusCodes.BadStateNotActive
        identifier = self._states[name] if name else ua.NodeId()
        for path, value in (
            ("CurrentState", ua.Variant(ua.LocalizedText(name))),
            ("CurrentState/Id", ua.Variant(identifier, ua.VariantType.NodeId)),
        ):
            node = await self._node(f"{machine}/{path}")
            await node.write_value(ua.DataValue(value, ua.StatusCode(good)))

    async def _add_words(self) -> None:
        folder = await self._system.add_folder(*self._own_name("Words"))
        for word in STATUS:
            node = await folder.add_variable(
                *self._own_name(f"Words/{word.name}"),
                "" if word.kind == "ascii" else 0,
                _variant(word),
            )
            await node.write_attribute(
                ua.AttributeIds.Description, ua.DataValue(ua.LocalizedText(word.meaning))
            )
            self._words[word.name] = node

    def _own_name(self, path: str) -> tuple[ua.NodeId, ua.QualifiedName]:
        """Return the id and the name of a node of our own by its path below the system."""
        name = path.rpartition("/")[2]
        below = ua.NodeId(f"{self._station}/{path}", self._ours)
        return below, ua.QualifiedName(name, self._ours)

    async def _add_recipes(self, base: Node, methods: Mapping[str, Method]) -> None:
        def name_of(product: str) -> tuple[ua.NodeId, ua.QualifiedName]:
            below = ua.NodeId(f"{self._station}/Recipes/{product}", self._ours)
            return below, ua.QualifiedName(product, self._ours)

        def link(node: Node, what: str, number: int) -> None:
            self._server.link_method(node, _checked(partial(methods[what], number)))

        folder = await self._node("RecipeManagement/Recipes")
        await self._recipes.build(folder, await _subtype(base, "RecipeType"), name_of, link)

    async def _node(self, path: str) -> Node:
        """Return a node by the names on the way to it, in whatever namespace they are."""
        node = self._system
        for name in filter(None, path.split("/")):
            children = await node.get_children()
            names = [(await child.read_browse_name()).Name for child in children]
            node = children[names.index(name)]
        return node

    async def _prune(self, path: str, kept: set[str]) -> None:
        for child in await (await self._node(path)).get_children():
            if (await child.read_browse_name()).Name not in kept:
                await self._server.delete_nodes([child], recursive=True)


async def _subtype(base: Node, name: str) -> Node:
    """Return a type below another one."""
    for node in await base.get_children(refs=ua.ObjectIds.HasSubtype):
        if (await node.read_browse_name()).Name == name:
            return node
        with contextlib.suppress(LookupError):
            return await _subtype(node, name)
    raise LookupError(name)


def _kind_of(value: Any) -> ua.VariantType:
    """Return the type of a field of an event; the only numbers there are enumerations."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ua.VariantType.Int32
    return ua.Variant(value).VariantType


def _variant(word: Word) -> ua.VariantType:
    return getattr(ua.VariantType, _VARIANTS[word.kind])


def _checked(method: Method) -> Method:
    """Return a method as asyncua calls it: with the node of its object, and for variants."""

    async def call(_: ua.NodeId, *arguments: ua.Variant) -> list[Any]:
        return await method(*(argument.Value for argument in arguments))

    return call
