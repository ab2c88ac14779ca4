"""Whether a capture of a product can be judged: bundle, threshold, alignment and part code."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anoco_edge.bundle import Bundle, Product
from anoco_edge.errors import BundleError, EnvironmentMissingError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.line.config.station_config import AlignTable, CaptureTable
from anoco_edge.line.judge.alignment import Aligner
from anoco_edge.line.judge.opinions import settings_checksum
from anoco_edge.line.judge.part_codes import CodeReader, CodeSettings
from anoco_edge.line.signed_bundles import BundleTrust, open_signed
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.pipeline.runtime_choice import (
    RuntimeName,
    choose_runtime,
    why_not_native,
)


def check_capture(
    capture: CaptureTable,
    base: Path,
    revision: str,
    runtime: RuntimeName = "auto",
    trust: BundleTrust | None = None,
) -> str:
    """Say in words what judges a capture; what is missing for it is an error. `base` is the folder
    of relative paths, `revision` that of the configuration."""
    bundle, signed = open_signed(base / capture.bundle, trust)
    product = bundle.product(capture.product)
    if product.bank is None:
        raise BundleError(
            f"product {product.name} of {bundle.path} has no references",
            hint=f"teach it with: anoco-edge enroll {bundle.path} PICTURES",
        )
    if product.threshold.value is None:
        raise BundleError(
            f"product {product.name} of {bundle.path} has no threshold, so every part would be "
            "without a verdict",
            hint=f"set it with: anoco-edge calibrate {bundle.path} PICTURES",
        )
    quality = "picture limits learned" if product.picture_limits else "every picture is judged"
    if capture.align is not None:
        quality += f", aligned by {_alignment(capture.align, bundle, product)}"
    if capture.code is not None:
        CodeReader(CodeSettings())
        quality += ", reads the part code" + (" (required)" if capture.code.required else "")
    quality += f", {_runtime(bundle, runtime)}"
    if signed is not None:
        quality += f", signed by key {signed.key.number} at {signed.comment.time}"
    checksum = settings_checksum([(bundle, product)], revision)
    return (
        f"{bundle.path}, {product.name}, generation {product.generation}, {product.threshold.kind} "
        f"threshold {product.threshold.value:.4g}, {quality}, checksum {checksum:04x}"
    )


def _runtime(bundle: Bundle, asked: RuntimeName) -> str:
    """Say which runtime judges, or why the one that was asked for cannot."""
    if asked == "native" and (why := why_not_native(bundle)):
        raise EnvironmentMissingError(why, hint='use runtime = "auto" or "python" in [line]')
    chosen = choose_runtime(bundle, asked)
    return f"runtime {chosen.name} ({chosen.reason})"


def _alignment(align: AlignTable, bundle: Bundle, product: Product) -> str:
    """Try the alignment on its own reference, moved as far as it may be."""
    first = product.references[0]
    picture = decode_picture(
        bundle.read(first.file, bundle.product_folder(product.name)), first.name
    )
    found = Aligner(align.settings(), picture).align(picture)
    if found is None:
        raise UsageError(
            f"{first.name} itself is not found with a score of {align.min_score}",
            hint="choose other boxes, or a lower min_score",
        )
    (height, width, _), far = picture.shape, align.search
    seen = np.zeros((height, width), np.bool_)
    seen[far : max(height - far, far), far : max(width - far, far)] = True
    if not PatchMask.of(bundle, product).is_covered(seen):
        raise UsageError(
            f"a part that has moved by {far} pixels is not seen whole",
            hint=f"keep the region of interest {far} pixels from the border, or search less far",
        )
    return f"{align.method} within {far} pixels"
