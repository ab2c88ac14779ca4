"""The bundle: the directory that export writes, teaching changes and inspection reads."""

from anoco_edge.bundle.bank import Bank, BankIndex
from anoco_edge.bundle.builtin import create_builtin_bundle, open_builtin
from anoco_edge.bundle.creation import create_bundle
from anoco_edge.bundle.schema import Manifest, Product, Reference, Region, Threshold
from anoco_edge.bundle.store import Bundle, find_bundle
from anoco_edge.images.contract import InputContract

__all__ = [
    "Bank",
    "BankIndex",
    "Bundle",
    "InputContract",
    "Manifest",
    "Product",
    "Reference",
    "Region",
    "Threshold",
    "create_builtin_bundle",
    "create_bundle",
    "find_bundle",
    "open_builtin",
]
