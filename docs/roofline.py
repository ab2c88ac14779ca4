"""Writes roofline.md: what a frame costs at least on four devices, on paper.

    python docs/roofline.py            # print the page
    python docs/roofline.py --write    # into docs/roofline.md, which a test holds to this script

Each operation takes its FLOPs over what the unit that computes it reaches, and its bytes over what
the memory reaches; the larger of the two is its time, and times add up. The shares of the peaks are
assumptions. Caches are not counted on, nor is anything overlapped, launched or scheduled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline_devices import DEVICES, Device

PAGE = Path(__file__).with_suffix(".md")

HALF, FLOAT, BYTE = 2, 4, 1
# DINOv3-L, as recipes/dinov3-l.toml taps it
SIDE, STRIDE, DIM, BLOCKS, PREFIX = 768, 16, 1024, 18, 5
PATCHES = (SIDE // STRIDE) ** 2
TOKENS = PATCHES + PREFIX  # class token and four registers
CAMERA = (1920, 1080)
BANKS = {"1-shot": PATCHES, "4-shot": 4 * PATCHES, "36k": 36_864, "100k": 100_000}
SHARE = 16  # the part of a device's memory that is for similarities; anoco_cuda.h's default
NEIGHBORS = 10  # of a patch; measured: median 3 to 5, 95th percentile 11 to 78
# Groups of 64 references that are computed again for a patch: those with two neighbors or more.
# With EfficientNet-Lite0's patches, 3 x 3 side by side, on three real sets: 1.9 to 2.8.
AGAIN = 2
TILE, TOGETHER, FRAGMENT = 128, 4, 16  # qr_top2.cu; a query takes all rows of a fragment
ROWS, COLUMNS, SUMMED = 64, 128, 64  # weighted_tile.cuh: a block's tile, terms of a plain sum
PARTS = 3  # products of half precision for one of float32 (parts.cu)
GROUP, RANKED = 64, 8  # references of which two are candidates, and the bytes of each

# Assumptions: what is reached of the peaks of products by TensorRT and cuBLAS, of products by our
# own kernels, which nobody has profiled, of other FP32 operations, and of the memory.
LIBRARY, OURS, PLAIN, MEMORY = 0.6, 0.4, 0.5, 0.8


SMALLEST = min(device.memory for device in DEVICES)


@dataclass(frozen=True)
class Operation:
    """What one operation reads, writes and computes; `tensor` are FLOPs of matrix products.

    `reached` is the share of the peak of matrix products.
    """

    stage: str
    bytes: float
    tensor: float = 0.0
    float32: float = 0.0
    reached: float = LIBRARY

    def seconds(self, device: Device) -> float:
        return max(
            self.tensor / (self.reached * device.tensor),
            self.float32 / (PLAIN * device.float32),
            self.bytes / (MEMORY * device.bandwidth),
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


@dataclass(frozen=True)
class Scoring:
    """The kernels of runtime/cuda, for patches and a bank in half precision.

    `memory` is that of the device; `own`: without cuBLAS. `neighbors` and `again` are of a patch:
    its neighbors, and the groups of references that are multiplied once more.
    """

    bank: int
    memory: float
    own: bool
    patches: int = PATCHES
    dim: int = DIM
    neighbors: float = NEIGHBORS
    again: float = AGAIN

    @property
    def similarities(self) -> float:
        return float(self.patches) * self.bank * FLOAT

    @property
    def gram_kept(self) -> bool:
        """Whether a neighbor takes a number of the Gram matrix; else it takes a dot product."""
        return self.bank * self.bank * FLOAT <= self.memory / SHARE

    @property
    def product(self) -> float:
        return 2.0 * self.patches * self.bank * self.dim

    def usual(self) -> list[Operation]:
        """What every picture takes."""
        n, d = self.patches, self.dim
        candidates = float(n) * -(-self.bank // GROUP) * 2 * RANKED
        compared = 0.0 if self.gram_kept else n * (self.neighbors + 2)
        again = n * self.again * self.own
        return [
            Operation("norms", n * d * HALF, float32=2.0 * n * d),
            *(self._candidates(candidates)),
            Operation(
                "walk",
                candidates + compared * d * HALF + again * GROUP * d * HALF,
                tensor=again * 2 * GROUP * d * FRAGMENT,
                float32=2.0 * compared * d,
                reached=OURS,
            ),
            Operation(
                "pull and energy",
                n * (self.neighbors + 1) * d * HALF,
                float32=(4.0 * self.neighbors + 8) * n * d,
            ),
        ]

    def _candidates(self, written: float) -> list[Operation]:
        n, d = self.patches, self.dim
        operands = n * d * HALF
        if self.own:
            bands = -(-n // (TILE * TOGETHER))  # the bank is read once for each
            moved = operands + bands * self.bank * d * HALF + written
            return [
                Operation("products", 0.0),
                Operation("candidates", moved, self.product, 2.0 * n * self.bank, OURS),
            ]
        room = self.memory / SHARE - self.bank * self.bank * FLOAT * self.gram_kept
        moved = operands + -(-self.similarities // room) * self.bank * d * HALF + self.similarities
        return [
            Operation("products", moved, self.product),
            Operation("candidates", self.similarities + written, float32=2.0 * n * self.bank),
        ]

    def wrong_part(self) -> list[Operation]:
        """What comes on top where every patch has the whole bank as neighbors."""
        n, d = self.patches, self.dim
        banks = self.bank * d * HALF
        read = n * d * HALF + banks * -(-n // TILE)
        limit = 2 * self.similarities if self.gram_kept else self.similarities + read
        once_more = [Operation("products", read + self.similarities, self.product, 0.0, OURS)]
        return [
            *(once_more if self.own else []),
            Operation("violators", limit, 0.0 if self.gram_kept else self.product, 0.0, OURS),
            Operation("weights", 4 * self.similarities, float32=6.0 * n * self.bank),
            Operation(
                "means",
                self.similarities * -(-d // COLUMNS) + banks * -(-n // ROWS) + n * d * FLOAT,
                tensor=2 * self.product,  # weights have two parts
                float32=7.0 * n * d * self.bank / SUMMED,
                reached=OURS,
            ),
            Operation("energies", n * d * (HALF + FLOAT), float32=12.0 * n * d),
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


def float32_products(bank: int, *, parts: bool) -> list[Operation]:
    """Q R^T of float32 features by cuBLAS, in plain float32 or as parts of half precision."""
    product, similarities = 2.0 * PATCHES * bank * DIM, float(PATCHES) * bank * FLOAT
    rows = float(PATCHES + bank) * DIM
    if not parts:
        return [Operation("products", rows * FLOAT + similarities, float32=product)]
    split = PATCHES * DIM * (FLOAT + PARTS * HALF)
    return [
        Operation("parts", split, float32=5.0 * PATCHES * DIM),
        Operation("products", PARTS * rows * HALF + similarities, tensor=PARTS * product),
    ]


def milliseconds(operations: list[Operation], device: Device) -> float:
    return 1e3 * sum(operation.seconds(device) for operation in operations)


# What the interpreter counted: bytes and FLOPs of a stage, of a usual picture and, from the
# violators on, of a wrong part. A test of the kernels holds them (tests/native).
COUNTED_SIZE = (64, 576, 128)
PICTURE = " x ".join(map(str, COUNTED_SIZE))
COUNTED = {
    ("candidates", False): (369_664, 82_944),
    ("candidates", True): (805_888, 21_128_192),
    ("walk", False): (567_888, 289_728),
    ("walk", True): (2_532_136, 17_266_324),
    ("pull and energy", False): (375_072, 1_168_716),
    ("violators", False): (1_040_640, 21_156_800),
    ("weights", False): (1_218_304, 524_288),
    ("means", False): (342_016, 19_484_672),
    ("energies", False): (316_672, 835_584),
}

CONCLUSION = (
    "Under 2 % at one reference and 5 % at four is reached on paper but on Thor, whose memory is",
    "slow beside its tensor cores: Q R^T goes through memory. Our own kernels keep it out, and are",
    "ahead of cuBLAS there with 100k references. Elsewhere the groups that they multiply again are",
    "what they lose by, 600 MB of a picture where no cache is counted on; patches side by side",
    "share such groups, so a device will do better than this. A large bank weighs most:",
    "`product set --max-patches` thins it.",
)

INTRODUCTION = """\
# A frame on paper

Predicted, not measured: **no machine that wrote this had a GPU**. `docs/roofline.py` computes this
page from the sizes of DINOv3-L at 768 px (18 blocks, FP16, attention fused) and the devices'
published peaks. Each operation takes the larger of its FLOPs and its bytes over what is reached of
the peaks, and times add up. What is reached is an assumption: 60 % of the tensor cores by TensorRT
and cuBLAS, 40 % by our own kernels, 50 % of other FP32 operations, 80 % of the memory's bandwidth.
No cache is counted on. The share says more than the milliseconds.

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
    return "\n".join(
        [
            *(INTRODUCTION, *_stages(), "", *_times(), "", *_wrong_part(), ""),
            *(*_float32(), "", *_counted(), "", *_peaks(), ""),
        ]
    )


def _stages() -> list[str]:
    lines = [
        "## What each stage moves and computes",
        "",
        f"{PATCHES} query patches of {DIM} numbers; a camera frame of {CAMERA[0]}x{CAMERA[1]}. "
        "Products by cuBLAS,",
        "then by our own kernels, which write candidates in place of the matrix of similarities.",
        "",
        "| stage | " + " | ".join(f"{name}: MB | GFLOP" for name in BANKS) + " |",
        "|---|" + "---:|---:|" * len(BANKS),
    ]

    def add(stage: str, columns: Sequence[Operation]) -> None:
        cells = (f"{op.bytes / 1e6:.1f} | {(op.tensor + op.float32) / 1e9:.2f}" for op in columns)
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")

    prepared, shown = picture()
    add("preprocess", [prepared] * len(BANKS))
    add("backbone", [_summed(backbone())] * len(BANKS))
    for own in (False, True):
        banks = [Scoring(bank, SMALLEST, own).usual() for bank in BANKS.values()]
        for stage in zip(*banks, strict=True):
            name = stage[0].stage
            if name in ("products", "candidates", "walk"):
                name += ", our own" if own else ", cuBLAS"
            if not own or name in ("candidates, our own", "walk, our own"):
                add(name, stage)
    add("map and score", [shown] * len(BANKS))
    return [
        *lines,
        "",
        f"Similarities are tiled to one part in {SHARE} of the device's memory, here of the",
        "smallest device. The bank's Gram matrix is kept where it fits into that (1-shot and",
        "4-shot); elsewhere each neighbor takes a dot product. There is no second matrix product.",
        f"A patch is taken to have {NEIGHBORS} neighbors; without cuBLAS, {AGAIN} groups of",
        f"{GROUP} references, in which it has more than one, are multiplied again.",
    ]


def _times() -> list[str]:
    lines = [
        "## Predicted milliseconds",
        "",
        "The rest is everything but the backbone: preparing the picture, scoring, map and score;",
        "by cuBLAS / by our own kernels, and the share of the faster in a whole frame. Both are",
        "measured on the device by `anoco-edge build`, and the faster runs.",
        "",
        "| device | backbone | " + " | ".join(f"{name} | share" for name in BANKS) + " |",
        "|---|---:|" + "---:|---:|" * len(BANKS),
    ]
    for device in DEVICES:
        network, frame = milliseconds(backbone(), device), milliseconds(picture(), device)
        cells = []
        for bank in BANKS.values():
            both = [
                milliseconds(Scoring(bank, device.memory, own).usual(), device) + frame
                for own in (False, True)
            ]
            least = min(both)
            share = 100 * least / (least + network)
            cells.append(f"{both[0]:.2f} / {both[1]:.2f} | {share:.1f} %")
        lines.append(f"| {device.name} | {network:.1f} | " + " | ".join(cells) + " |")
    return [*lines, "", *CONCLUSION]


def _two_ways(ways: Callable[[int, Device, bool], list[Operation]], digits: int) -> list[str]:
    """Return a table with the milliseconds of one way to compute something, and of another."""
    lines = [
        "| device | " + " | ".join(BANKS) + " |",
        "|---|" + "---:|" * len(BANKS),
    ]
    for device in DEVICES:
        cells = []
        for bank in BANKS.values():
            both = (milliseconds(ways(bank, device, way), device) for way in (False, True))
            cells.append(" / ".join(f"{one:.{digits}f}" for one in both))
        lines.append(f"| {device.name} | " + " | ".join(cells) + " |")
    return lines


def _wrong_part() -> list[str]:
    return [
        "## A wrong part",
        "",
        "Milliseconds that come on top where every patch has the whole bank as neighbors, by",
        "cuBLAS / by our own kernels. Such rows are finished by tensor cores: the products of",
        "their anchors, and the means of the references, whose weights have two parts of half",
        "precision. How many rows there are is known only to the device, and nothing waits for it.",
        "",
        *_two_ways(
            lambda bank, device, own: Scoring(bank, device.memory, own).wrong_part(), digits=1
        ),
    ]


def _float32() -> list[str]:
    return [
        "## FP32 features",
        "",
        "The rest of this page is about FP16 features. FP32 features are multiplied as three",
        "products of half-precision parts: three times the multiplications of one product, on",
        "tensor cores. Milliseconds of Q R^T alone, by cuBLAS, in plain float32 / as parts, with",
        "the splitting of the query; that of the bank is done once. Rows with more than 128",
        "neighbors are finished in plain float32 either way.",
        "",
        *_two_ways(lambda bank, device, parts: float32_products(bank, parts=parts), digits=2),
        "",
        "Parts pay where tensor cores multiply more than three times as fast as the rest of the",
        "device. Those of the RTX 4090, with FP32 sums, are twice as fast: plain float32 is ahead",
        "there on paper, and `ANOCO_EDGE_CUDA_FLOAT32=plain` asks for it.",
    ]


def _counted() -> list[str]:
    size = dict(zip(("patches", "bank", "dim"), COUNTED_SIZE, strict=True))
    lines = [
        "## Counted beside it",
        "",
        "The interpreter of the tests (`runtime/tests/ptx`) runs the PTX of sm_87 and counts what",
        f"its instructions ask for, here for {PICTURE} (patches, references, numbers):",
        "a usual picture, and from the violators on a wrong part. Numbers that many threads read",
        "count each time, so its bytes are those that caches serve, this page's those of the",
        "memory. Tensor cores multiply whole tiles.",
        "",
        "| stage | counted KB | this page | counted MFLOP | this page |",
        "|---|---:|---:|---:|---:|",
    ]
    for (stage, own), (moved, flops) in COUNTED.items():
        scoring = Scoring(**size, memory=16e6, own=own, neighbors=5.5, again=1)
        paper = next(x for x in scoring.usual() + scoring.wrong_part() if x.stage == stage)
        name = f"{stage}, our own" if own else stage
        cells = (moved / 1e3, paper.bytes / 1e3, flops / 1e6, (paper.tensor + paper.float32) / 1e6)
        lines.append(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    return lines


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
