"""The devices of roofline.py, with their published peaks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """Peak rates: FP16 products with FP32 sums on tensor cores, FP32 on the others, memory."""

    name: str
    tensor: float
    float32: float
    bandwidth: float
    memory: float
    source: str


DEVICES = (
    Device(
        "Orin Nano 8 GB (Super)",
        16.75e12,
        2.09e12,
        102e9,
        8e9,
        "67 INT8 TOPS sparse, a quarter of it FP16 dense; 1024 cores x 2 x 1.02 GHz; 102 GB/s "
        "(NVIDIA, Jetson Orin Nano Super Developer Kit datasheet, December 2024)",
    ),
    Device(
        "AGX Orin 64 GB",
        42.5e12,
        5.3e12,
        204.8e9,
        64e9,
        "170 INT8 TOPS sparse of its GPU, a quarter of it FP16 dense; 2048 cores x 2 x 1.3 GHz; "
        "204.8 GB/s (NVIDIA, Jetson AGX Orin Series Technical Brief v1.2)",
    ),
    Device(
        "Thor T5000",
        258.75e12,
        8.06e12,
        273e9,
        128e9,
        "2070 FP4 TFLOPS sparse, an eighth of it FP16 dense; 2560 cores x 2 x 1.575 GHz; 273 GB/s "
        "(NVIDIA, Jetson Thor series datasheet, 2025)",
    ),
    Device(
        "RTX 4090",
        165.2e12,
        82.6e12,
        1008e9,
        24e9,
        "165.2 FP16 TFLOPS dense with FP32 sums; 82.6 FP32; 1008 GB/s "
        "(NVIDIA, Ada GPU Architecture whitepaper v2.1)",
    ),
)
