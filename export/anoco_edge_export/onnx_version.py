"""The versions that every graph carries, so that old and new runtimes load it.

onnxruntime 1.23, which is the newest for the Python of JetPack 6, and TensorRT 10.3 load IR version
10 and opset 18; they refuse what onnx writes by default.
"""

from __future__ import annotations

IR_VERSION = 10
OPSET = 18
