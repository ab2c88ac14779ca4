"""Writes a file that grows by whole lines, even if the disk is full or writing is interrupted."""

from __future__ import annotations

import os
from pathlib import Path


class WholeLines:
    """Appends lines to a file; a line that cannot be written whole is removed again.

    The file starts empty, or with the first `keep` bytes of what is there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = WholeLines(Path(folder, "a.txt"))
    ...     lines.write("one\\n")
    ...     lines.close()
    ...     Path(folder, "a.txt").read_text(), lines.size
    ('one\\n', 4)
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        # The file is unbuffered, because a buffer would write what it still holds after an error
        # again when the file is closed.
        self._file = path.open("r+b" if keep else "wb", buffering=0)
        self._file.truncate(keep)
        self._file.seek(keep)
        self.size = keep

    def write(self, text: str) -> None:
        """Append a text that ends with a line break; afterwards it is in the file."""
        # The name of a file need not be UTF-8. Its odd bytes become \\udcXX, which JSON reads back.
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        size = self.size + len(rest)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except BaseException:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size = size

    def close(self) -> None:
        """Close the file after its content is on the disk; may be called twice."""
        if not self._file.closed:
            try:
                os.fsync(self._file.fileno())
            finally:
                self._file.close()
