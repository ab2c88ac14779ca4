"""Takes references from the frames of a source, such as a camera with a good part before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from anoco_edge.errors import SourceError
from anoco_edge.images.frame import Frame
from anoco_edge.teaching.new_pictures import NewPicture


def pictures_from_frames(
    frames: Iterable[Frame],
    count: int,
    *,
    name: str = "the source",
    pause: float = 0.0,
    on_picture: Callable[[str], None] = lambda _: None,
) -> list[NewPicture]:
    """Take the next `count` frames as pictures of good parts, with `pause` seconds between them.

    A frame that was not read is an error, and so are fewer frames than `count`.

    >>> import numpy as np
    >>> frames = [Frame(f"cam#{k}", k, np.full((16, 16, 3), k, np.uint8)) for k in range(9)]
    >>> [picture.name for picture in pictures_from_frames(frames, 2)]
    ['cam#0', 'cam#1']
    >>> pictures_from_frames(frames[:1], 2, name="cam")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.SourceError: cam gave only 1 of 2 frames to teach; ask for fewer frames
    """
    pictures: list[NewPicture] = []
    for frame in islice(frames, count):
        called = frame.source if "#" in frame.source else Path(frame.source).name
        pictures.append(NewPicture.from_array(called, frame.pixels))
        on_picture(called)
        if pause and len(pictures) < count:
            time.sleep(pause)
    if len(pictures) < count:
        raise SourceError(
            f"{name} gave only {len(pictures)} of {count} frames to teach",
            hint="ask for fewer frames",
        )
    return pictures
