"""A file that grows by whole lines, whatever happens."""

from __future__ import annotations

import os
from pathlib import Path


class WholeLines:
    """What does not fit on the disk, or is interrupted, is taken back to the last whole line.

    Begins anew, or after the first `keep` bytes of what is there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = WholeLines(Path(folder, "a.txt"))
    ...     lines.write("one\\n")
    ...     lines.close()
    ...     Path(folder, "a.txt").read_text(), lines.size
    ('one\\n', 4)
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        # Unbuffered: what a buffer still holds after an error would be written again on closing.
        self._file = path.open("r+b" if keep else "wb", buffering=0)
        self._file.truncate(keep)
        self._file.seek(keep)
        self.size = keep

    def write(self, text: str) -> None:
        """Append text that ends a line; afterwards it is in the file."""
        # A file name need not be UTF-8; its odd bytes become \\udcXX, which JSON reads back.
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
        """Nothing is left to write, and the disk has it; may be called twice."""
        if not self._file.closed:
            try:
                os.fsync(self._file.fileno())
            finally:
                self._file.close()
