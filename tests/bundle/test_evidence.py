"""Every kind of threshold evidence is read from what files hold, and written as it was read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from paths import GOLDEN

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.checksum import seal
from anoco_edge.bundle.documents import read_document, sealed_document
from anoco_edge.bundle.evidence import (
    ConformalEvidence,
    EqualReferencesEvidence,
    HeldOutEvidence,
    LeaveOneOutEvidence,
    LostCalibrationEvidence,
    ManualEvidence,
    NoEvidence,
    ProvisionalEvidence,
    ThresholdEvidence,
    UnknownEvidence,
)
from anoco_edge.errors import BundleError

CONFORMAL = {
    "exact": True,
    "asked": 0.4,
    "false_reject": 0.25,
    "interval": [0.125, 0.625],
    "parts": 3,
    "order": 3,
    "words": "3 good parts, held out.",
}
HELD_OUT = {"method": "held-out pictures", **CONFORMAL}
LEAVE_ONE_OUT = {"method": "leave-one-picture-out", **CONFORMAL, "scores": [0.5, 2.0]}
PROVISIONAL = {"method": "leave-one-picture-out", "scores": [0.5, 2.0], "margin": 1.2}
DOUBTS = ["they look like 1"]

WRITTEN: list[tuple[dict[str, Any], type[ThresholdEvidence]]] = [
    ({}, NoEvidence),
    (HELD_OUT, HeldOutEvidence),
    (HELD_OUT | {"pictures": 9}, HeldOutEvidence),
    (HELD_OUT | {"doubts": DOUBTS, "parts_found": 1, "pictures": 9}, HeldOutEvidence),
    (LEAVE_ONE_OUT, LeaveOneOutEvidence),
    (
        {"method": "leave-one-picture-out", **CONFORMAL, "doubts": DOUBTS, "scores": [1.0]},
        LeaveOneOutEvidence,
    ),
    (PROVISIONAL, ProvisionalEvidence),
    (PROVISIONAL | {"words": "they look like one part", "doubts": DOUBTS}, ProvisionalEvidence),
    (PROVISIONAL | {"method": "gentle augmentations of the only reference"}, ProvisionalEvidence),
    ({"method": "leave-one-picture-out", "scores": [0.0, 0.0]}, EqualReferencesEvidence),
    ({"lost": "its calibration pictures were not kept"}, LostCalibrationEvidence),
    ({"parts_found": 9}, ManualEvidence),
    ({"doubts": DOUBTS, "parts_found": 1}, ManualEvidence),
]


def document(evidence: object) -> bytes:
    product = Product(name="part", generation=1, changed="today", change="made")
    fields = product.model_dump(mode="json", by_alias=True)
    fields["threshold"]["evidence"] = evidence
    return seal(fields)


def read(evidence: object) -> Product:
    return read_document(document(evidence), Product, "product.json")


@pytest.mark.parametrize(("evidence", "kind"), WRITTEN)
def test_every_kind_that_is_written_has_a_type_and_stays_the_same_to_the_byte(
    evidence: dict[str, Any], kind: type[ThresholdEvidence]
) -> None:
    product = read(evidence)
    assert type(product.threshold.evidence) is kind
    assert sealed_document(product) == document(evidence)
    assert product.threshold.evidence.model_dump() == evidence
    again = Product.model_validate(product.model_dump(by_alias=True))
    assert again == product and sealed_document(again) == document(evidence)


@pytest.mark.parametrize(("evidence", "kind"), WRITTEN[1:])
def test_a_key_of_another_version_is_kept(
    evidence: dict[str, Any], kind: type[ThresholdEvidence]
) -> None:
    product = read(evidence | {"invented": {"a": [1, None, 0.5]}})
    written = json.loads(sealed_document(product))["threshold"]["evidence"]
    assert written == evidence | {"invented": {"a": [1, None, 0.5]}}
    if kind in (HeldOutEvidence, LeaveOneOutEvidence, ProvisionalEvidence):
        assert type(product.threshold.evidence) is kind


@pytest.mark.parametrize(
    "evidence",
    [
        {"invented": None},
        {"lost": ["no text"]},
        {"doubts": []},
        HELD_OUT | {"exact": 1},
        HELD_OUT | {"parts": 2.5},
        HELD_OUT | {"interval": [0.1]},
        {key: value for key, value in HELD_OUT.items() if key != "order"},
        PROVISIONAL | {"scores": "0.5"},
    ],
)
def test_what_no_version_writes_is_unknown_and_kept(evidence: dict[str, Any]) -> None:
    product = read(evidence)
    assert type(product.threshold.evidence) is UnknownEvidence
    assert sealed_document(product) == document(evidence)


@pytest.mark.parametrize("evidence", [None, 3, "lost", [], [{}]])
def test_evidence_that_is_no_object_is_refused_with_its_place(evidence: object) -> None:
    with pytest.raises(BundleError, match=r"invalid at threshold\.evidence: Input should be an"):
        read(evidence)


def test_evidence_explains_itself() -> None:
    assert read(HELD_OUT).threshold.evidence.explanation == CONFORMAL["words"]
    assert read({"lost": "why"}).threshold.evidence.explanation == "why"
    assert read(PROVISIONAL | {"words": "doubt"}).threshold.evidence.explanation == "doubt"
    for silent in ({}, PROVISIONAL, {"parts_found": 3}, {"words": 3}):
        assert read(silent).threshold.evidence.explanation is None


def test_evidence_of_the_first_schema_version_has_its_types() -> None:
    kinds = {
        (path.name, name): type(Bundle.open(path).product(name).threshold.evidence)
        for path in sorted(GOLDEN.glob("v1/*_anoco"))
        for name in Bundle.open(path).products()
    }
    assert kinds == {
        ("everything_anoco", "größe"): HeldOutEvidence,
        ("everything_anoco", "other"): NoEvidence,
        ("plain_anoco", "part"): ProvisionalEvidence,
        ("views_anoco", "part"): ProvisionalEvidence,
    }
    old = Bundle.open(GOLDEN / "v1" / "everything_anoco").product("größe").threshold.evidence
    assert isinstance(old, ConformalEvidence) and old.interval[1] == 0.6315968501359615
    with pytest.raises(ValueError, match="frozen"):
        old.exact = False  # type: ignore[misc]
