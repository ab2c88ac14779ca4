"""Sources of frames: pictures, folders, globs, videos, cameras and network streams.

Every source yields the same `Frame`. A source is read once: a second `for` over it goes on where
the first one stopped, so that the first frames can be taken as references.
"""

from anoco_edge.images.frame import Frame
from anoco_edge.sources.base import Source
from anoco_edge.sources.registry import SOURCES, SourceSpec, open_source

__all__ = ["SOURCES", "Frame", "Source", "SourceSpec", "open_source"]
