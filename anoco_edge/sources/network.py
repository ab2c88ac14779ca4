"""Opens network streams: MJPEG over HTTP by ourselves, RTSP and all others by FFmpeg."""

from __future__ import annotations

from collections.abc import Sequence

from anoco_edge.sources import av_reader, mjpeg_http
from anoco_edge.sources.live import LiveSource
from anoco_edge.sources.reader import FrameReader
from anoco_edge.text.address import mask_address


def open_web_address(inputs: Sequence[str], *, limit: int | None, timeout: float) -> LiveSource:
    """Open an HTTP address: a stream of JPEGs, or whatever FFmpeg reads."""
    (address,) = inputs
    name = mask_address(address)
    reader: FrameReader | None = mjpeg_http.open_mjpeg(address, name, timeout)
    reader = reader or av_reader.open_stream(address, name, timeout)
    return LiveSource(reader, name, limit=limit, timeout=timeout)


def open_stream_address(inputs: Sequence[str], *, limit: int | None, timeout: float) -> LiveSource:
    """Open the address of an RTSP or other stream that FFmpeg reads."""
    (address,) = inputs
    name = mask_address(address)
    reader = av_reader.open_stream(address, name, timeout)
    return LiveSource(reader, name, limit=limit, timeout=timeout)
