"""Pictures of machine-vision cameras as RGB: the pixel formats of GenICam that a line takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import PictureError
from anoco_edge.sources.cv2_reader import load_cv2

Pixels = NDArray[np.uint8]
# Codes of the Pixel Format Naming Convention, and how many bits a gray value has.
_GRAY = {0x01080001: 8, 0x01100003: 10, 0x01100005: 12, 0x01100025: 14, 0x01100007: 16}
_RGB8, _BGR8 = 0x02180014, 0x02180015
# OpenCV names the second row of the pattern, from its second column.
_BAYER = {0x01080008: "GB", 0x01080009: "BG", 0x0108000A: "GR", 0x0108000B: "RG"}


def to_rgb(data: Pixels, width: int, height: int, pixel_format: int) -> Pixels:
    """Return the pixels of a buffer as HxWx3 RGB; gray values keep their highest eight bits.

    The result may be a view of the buffer. A format that is not known, or a buffer that is too
    short, is a PictureError.

    >>> to_rgb(np.arange(6, dtype=np.uint8), 3, 2, 0x01080001)[1, 2].tolist()
    [5, 5, 5]
    >>> to_rgb(np.frombuffer(b"\\xff\\x0f\\x00\\x08", np.uint8), 2, 1, 0x01100005)[0, :, 0].tolist()
    [255, 128]
    """
    if pixel_format in _GRAY:
        bits = _GRAY[pixel_format]
        gray = _cut(data, width * height * (1 if bits == 8 else 2))
        if bits > 8:
            gray = (gray.view("<u2").astype(np.uint16) >> (bits - 8)).astype(np.uint8)
        gray = gray.reshape(height, width)
        return np.broadcast_to(gray[..., None], (height, width, 3))
    if pixel_format in (_RGB8, _BGR8):
        rgb = _cut(data, width * height * 3).reshape(height, width, 3)
        return rgb if pixel_format == _RGB8 else rgb[..., ::-1]
    if pixel_format in _BAYER:
        cv2 = load_cv2()
        raw = _cut(data, width * height).reshape(height, width)
        code = getattr(cv2, f"COLOR_Bayer{_BAYER[pixel_format]}2RGB")
        found: Pixels = cv2.cvtColor(raw, code)
        return found
    raise PictureError(
        f"the camera sends the pixel format 0x{pixel_format:08x}",
        hint="set PixelFormat to Mono8, Mono10, Mono12, Mono16, RGB8, BGR8 or Bayer with 8 bits",
    )


def _cut(data: Pixels, size: int) -> Pixels:
    if len(data) < size:
        raise PictureError(
            f"a frame of {len(data)} bytes is shorter than {size}", hint="check the camera"
        )
    return data[:size]
