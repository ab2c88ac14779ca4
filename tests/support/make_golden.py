"""Makes the golden bundles of the current schema version.

It refuses to replace bundles that exist, because they record what a schema version wrote. Run:

PYTHONPATH=.:tests/support python tests/support/make_golden.py
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from paths import GOLDEN
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.masks import decode_mask
from anoco_edge.bundle.schema import LATER_FIELDS, SCHEMA_VERSION
from anoco_edge.engines.selftest import read_selftest
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching import NewPicture, Settings, Teacher
from anoco_edge.teaching.drafts import TileSettings

CURRENT = GOLDEN / f"v{SCHEMA_VERSION}"
"""The bundles of the current schema version."""
WIDTH, HEIGHT = 48, 40


def good_parts(*seeds: int) -> list[NewPicture]:
    return [NewPicture.from_array(f"good{k}", textured_picture(k, WIDTH, HEIGHT)) for k in seeds]


def make_plain(path: Path) -> None:
    Teacher.open(new_bundle(path)).enroll(good_parts(1, 2), "part")


def make_everything(path: Path) -> None:
    """Make a bundle with region, mask, tiles, two products, baseline and conformal threshold."""
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[:8, :16] = 255
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    settings = Settings(
        {"pooling": "top5", "metric": "cosine", "lambda": 2.5, "floor": 0.0, "min_area": 3.0},
        region=[(0, 0), (44, 0), (48, 40), (2, 36)],
        mask=buffer.getvalue(),
        tiles=TileSettings(grid=(2, 1)),
    )
    teacher = Teacher.open(new_bundle(path))
    teacher.enroll(good_parts(1, 2), "größe", settings)
    teacher.calibrate(good_parts(3, 4, 5, 6, 7, 8), "größe", false_reject=0.4, sigmas=1.5)
    teacher.enroll(good_parts(9), "other", Settings({"bank_dtype": "float32"}, threshold=0.125))


def make_views(path: Path) -> None:
    Teacher.open(new_bundle(path)).enroll(
        good_parts(1, 2), "part", Settings({"tta": "references", "tta_seed": 5}, max_patches=20)
    )


def new_bundle(path: Path) -> Path:
    return make_tiny_bundle(path, size=(32, 32), dim=4).path


def contents(path: Path) -> dict[str, Any]:
    """Return all that Python reads from a bundle, in the form of runtime/tests/read_bundle.cpp."""
    bundle = Bundle.open(path)
    manifest = bundle.manifest
    bundle.graph()  # this checks its hash
    return {
        "manifest": {
            "backbone": manifest.backbone.id,
            "precision": manifest.backbone.precision,
            "random_weights": manifest.backbone.weights.random,
            "input": manifest.input.model_dump(mode="json"),
            "files": [record.model_dump() for record in manifest.files],
        },
        "graph": "backbone.onnx",
        "selftest": dict(
            zip(("pixels", "features", "energies"), map(hashed, read_selftest(bundle)), strict=True)
        ),
        "products": {name: product_contents(bundle, name) for name in bundle.products()},
    }


def product_contents(bundle: Bundle, name: str) -> dict[str, Any]:
    product = bundle.product(name)
    folder = bundle.product_folder(name)
    for reference in product.references:
        bundle.locate(reference.file, folder)
    mask = product.mask and decode_mask(bundle.read(product.mask, folder), "mask")
    baseline = bundle.baseline(product)
    return {
        "product": product_fields(product),
        "canvas": bundle.manifest.input.tiled(product.tiles).model_dump(mode="json"),
        "bank": bank_contents(bundle, product) if product.bank else None,
        "mask": None
        if mask is None
        else {"width": mask.shape[1], "height": mask.shape[0], "set": hashed(mask)},
        "baseline": None
        if baseline is None
        else {
            "mean": hashed(baseline.mean),
            "spread": hashed(baseline.spread),
            "sigmas": baseline.sigmas,
        },
    }


def bank_contents(bundle: Bundle, product: Product) -> dict[str, Any]:
    bank = bundle.bank(product)
    features = bank.references.features
    return {
        "half": features.dtype == np.float16,
        "rows": features.shape[0],
        "dim": features.shape[1],
        "features": hashed(features),
        **{name: hashed(getattr(bank, name)) for name in ("reference", "view", "row", "col")},
    }


def product_fields(product: Product) -> dict[str, Any]:
    """Return the fields that the C++ struct has, without those that only teaching needs."""
    fields = product.model_dump(mode="json", by_alias=True)
    threshold, calibration = fields.pop("threshold"), fields.pop("calibration")
    coreset, dtype = fields.pop("coreset"), fields.pop("bank_dtype")
    for name in ("schema_version", "checksum", "parent", "changed", "change", "tta_seed"):
        del fields[name]
    # The native reader checks these and keeps none of them; the other later ones are compared.
    for name in set(LATER_FIELDS) - {"lambda_kind", "cpu_precision"}:
        fields.pop(name, None)
    if fields["baseline"] is not None:
        del fields["baseline"]["pictures"]
    return {
        **fields,
        "region": fields["region"]["points"] if fields["region"] else [],
        "threshold_kind": threshold["kind"],
        "threshold": threshold["value"] or 0.0,
        "calibrated": calibration is not None,
        "calibration_lost": threshold["evidence"].get("lost") is not None,
        "thinned": coreset is not None,
        "bank_half": dtype == "float16",
    }


def hashed(array: np.ndarray) -> str:
    return sha256_bytes(np.ascontiguousarray(array).tobytes())


def main() -> None:
    CURRENT.mkdir()  # this fails if the bundles exist already
    for make in (make_plain, make_everything, make_views):
        name = make.__name__.removeprefix("make_")
        path = CURRENT / f"{name}_anoco"  # *.anoco is ignored by git
        make(path)
        for lock in path.glob("products/*/.lock"):
            lock.unlink()
        text = json.dumps(contents(path), indent=1, ensure_ascii=False)
        (CURRENT / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
