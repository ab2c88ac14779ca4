"""Writes roofline.md: what a frame costs at least on four devices, on paper.

    python docs/roofline.py            # print the page
    python docs/roofline.py --write    # into docs/roofline.md, which a test holds to this script

Each operation takes at least its FLOPs over the peak of the unit that computes it, and at least its
bytes over the memory's bandwidth; the larger of the two is its time, and times add up. Caches are
not counted on, nor is anything overlapped, launched or scheduled: real frames are slower.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")

HALF, FLOAT, BYTE = 2, 4, 1
SIDE, STRIDE, DIM, BLOCKS, PREFIX = (
    768,
    16,
    1024,
    18,
    5,
)  # DINOv3-L, as recipes/dinov3-l.toml taps it
PATCHES = (SIDE // STRIDE) ** 2
TOKENS = PATCHES + PREFIX  # class token and four registers
CAMERA = (1920, 1080)
BANKS = {"1-shot": PATCHES, "4-shot": 4 * PATCHES, "100k": 100_000}
BUDGET = 256 << 20  # bytes for similarities on the device; anoco_cuda.h's default
NEIGHBOURS = 10  # of a patch; measured: median 3 to 5, 95th percentile 11 to 78


@dataclass(frozen=True)
class Device:
    """Peak rates: FP16 products with FP32 sums on tensor cores, FP32 on the others, memory."""

    name: str
    tensor: float
    float32: float
    bandwidth: float
    source: str


DEVICES = (
    Device(
        "Orin Nano 8 GB (Super)",
        16.75e12,
        2.09e12,
        102e9,
        "67 INT8 TOPS sparse, a quarter of it FP16 dense; 1024 cores x 2 x 1.02 GHz; 102 GB/s "
        "(NVIDIA, Jetson Orin Nano Super Developer Kit datasheet, December 2024)",
    ),
    Device(
        "AGX Orin 64 GB",
        42.5e12,
        5.3e12,
        204.8e9,
        "170 INT8 TOPS sparse of its GPU, a quarter of it FP16 dense; 2048 cores x 2 x 1.3 GHz; "
        "204.8 GB/s (NVIDIA, Jetson AGX Orin Series Technical Brief v1.2)",
    ),
    Device(
        "Thor T5000",
        258.75e12,
        8.06e12,
        273e9,
        "2070 FP4 TFLOPS sparse, an eighth of it FP16 dense; 2560 cores x 2 x 1.575 GHz; 273 GB/s "
        "(NVIDIA, Jetson Thor series datasheet, 2025)",
    ),
    Device(
        "RTX 4090",
        165.2e12,
        82.6e12,
        1008e9,
        "165.2 FP16 TFLOPS dense with FP32 sums; 82.6 FP32; 1008 GB/s "
        "(NVIDIA, Ada GPU Architecture whitepaper v2.1)",
    ),
)


@dataclass(frozen=True)
class Operation:
    """What one operation reads, writes and computes; `tensor` are FLOPs of matrix products."""

    stage: str
    bytes: float
    tensor: float = 0.0
    float32: float = 0.0

    def seconds(self, device: Device) -> float:
        return max(
            self.tensor / device.tensor,
            self.float32 / device.float32,
            self.bytes / device.bandwidth,
        )


def backbone() -> list[Operation]:
    """18 transformer blocks in half precision, attention fused: its logits never leave the chip."""
    t, d, w = TOKENS, DIM, HALF
    act = t * d * w

    def product(rows: int, inner: int, cols: int, extra: float = 0.0) -> Operation:
        moved = (rows * inner + inner * cols + rows * cols) * w
        return Operation("backbone", moved + extra, tensor=2.0 * rows * inner * cols)

    norm = Operation("backbone", 2 * act, float32=8.0 * t * d)
    block = [
        norm,
        product(t, d, 3 * d),
        Operation("backbone", 4 * act, tensor=4.0 * t * t * d, float32=5.0 * t * t * d / 64),
        product(t, d, d, extra=act),  # the residual is read as well
        norm,
        product(t, d, 4 * d),
        product(t, 4 * d, d, extra=act),
    ]
    return [product(PATCHES, 3 * STRIDE * STRIDE, d), *(block * BLOCKS), norm]


def scoring(bank: int) -> list[Operation]:
    """runtime/cuda, kernel by kernel, for queries and bank in half precision."""
    n, d = PATCHES, DIM
    similarities = float(n) * bank * FLOAT
    tiles = -(-int(similarities) // BUDGET)  # the bank is read once for each
    product = Operation(
        "products Q R^T",
        n * d * HALF + tiles * bank * d * HALF + similarities,
        tensor=2.0 * n * bank * d,
    )
    gram_fits = bank * bank * FLOAT <= BUDGET
    anchors = (
        Operation("anchor products", 0.0)
        if gram_fits
        else Operation("anchor products", product.bytes + 2 * n * d * HALF, tensor=product.tensor)
    )
    divided = 2.0 * n * bank
    return [
        Operation("norms", n * d * HALF, float32=2.0 * n * d),
        product,
        Operation("anchor", similarities, float32=divided),
        anchors,
        Operation("violator", 2 * similarities, float32=2 * divided),
        Operation(
            "aggregation",
            similarities + n * (NEIGHBOURS + 1) * d * HALF + 2 * n * d * FLOAT,
            float32=divided + 4.0 * n * NEIGHBOURS * d,
        ),
        Operation("energy", n * d * (HALF + 2 * FLOAT), float32=8.0 * n * d),
    ]


def picture() -> list[Operation]:
    """A camera's RGB frame to the model's input, and energies to the map and the score."""
    width, height = CAMERA
    grid = SIDE // STRIDE
    return [
        Operation(
            "preprocess",
            3.0 * (width * height + 2 * SIDE * height + SIDE * SIDE) * BYTE,
            float32=2.0 * 3 * (SIDE * height * 6 + SIDE * SIDE * 4),
        ),
        Operation(
            "map and score",
            float(2 * grid * SIDE + SIDE * SIDE + 2 * grid * grid) * FLOAT,
            float32=2.0 * 9 * (grid * SIDE + SIDE * SIDE),
        ),
    ]


def milliseconds(operations: list[Operation], device: Device) -> float:
    return 1e3 * sum(operation.seconds(device) for operation in operations)


INTRODUCTION = """\
# A frame on paper

Predicted, not measured: **no machine that wrote this had a GPU**. `docs/roofline.py` computes this
page from the sizes of DINOv3-L at 768 px (18 blocks, FP16) and the devices' published peaks; each
operation takes the larger of FLOPs over peak and bytes over bandwidth, and times add up. Real
frames are slower, backbone and scoring alike, so the share says more than the milliseconds.

To measure, on the device itself:

```text
anoco-edge build line.anoco
anoco-edge device-report line.anoco
anoco-edge bench --scorers cuda \\
    --scoring 2304x2304x1024,2304x9216x1024,2304x100000x1024
```
"""


def page() -> str:
    """The whole of roofline.md."""
    return "\n".join([INTRODUCTION, *_stages(), "", *_times(), "", *_peaks(), ""])


def _stages() -> list[str]:
    whole = {
        name: [*picture()[:1], _summed(backbone()), *scoring(bank), *picture()[1:]]
        for name, bank in BANKS.items()
    }
    lines = [
        "## What each stage moves and computes",
        "",
        f"{PATCHES} query patches of {DIM} numbers; a camera frame of {CAMERA[0]}x{CAMERA[1]}.",
        "",
        "| stage | " + " | ".join(f"{name}: MB | GFLOP" for name in BANKS) + " |",
        "|---|" + "---:|---:|" * len(BANKS),
    ]
    for row in zip(*whole.values(), strict=True):
        cells = [f"{op.bytes / 1e6:.1f} | {(op.tensor + op.float32) / 1e9:.2f}" for op in row]
        lines.append(f"| {row[0].stage} | " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        f"Similarities are tiled to {BUDGET >> 20} MB. The bank's Gram matrix is kept where it",
        "fits into that (1-shot); elsewhere the anchors' products are computed again. A patch is",
        f"taken to have {NEIGHBOURS} neighbours.",
    ]


def _times() -> list[str]:
    lines = [
        "## Predicted milliseconds",
        "",
        "| device | backbone | " + " | ".join(f"the rest, {name} | share" for name in BANKS) + " |",
        "|---|---:|" + "---:|---:|" * len(BANKS),
    ]
    for device in DEVICES:
        network, frame = milliseconds(backbone(), device), milliseconds(picture(), device)
        cells = []
        for bank in BANKS.values():
            ours = milliseconds(scoring(bank), device) + frame
            cells.append(f"{ours:.2f} | {100 * ours / (ours + network):.1f} %")
        lines.append(f"| {device.name} | {network:.1f} | " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        "The rest is everything but the backbone: preparing the picture, scoring, map and score.",
        "The share is that of a whole frame. Where bandwidth is small beside the tensor cores",
        "(Thor) a large bank weighs most: `product set --max-patches` thins it.",
    ]


def _peaks() -> list[str]:
    return [
        "## The peaks, and where they can be checked",
        "",
        "The figures are from secondary pages; the vendor's documents named here were not at hand.",
        "Check them before you rely on a number of this page.",
        "",
        "| device | FP16 TFLOPS | FP32 TFLOPS | GB/s | how, and the document to check |",
        "|---|---:|---:|---:|---|",
        *(
            f"| {d.name} | {d.tensor / 1e12:g} | {d.float32 / 1e12:g} | {d.bandwidth / 1e9:g} "
            f"| {d.source} |"
            for d in DEVICES
        ),
    ]


def _summed(operations: list[Operation]) -> Operation:
    return Operation(
        operations[0].stage,
        sum(o.bytes for o in operations),
        sum(o.tensor for o in operations),
        sum(o.float32 for o in operations),
    )


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
