"""CLIP's tokenizer: byte pairs, merged by the list of merges that open_clip ships.

The list is OpenAI's `bpe_simple_vocab_16e6.txt.gz`. It is read from the installed package
`open_clip_torch`, and nothing of the package is imported. Prompts are ASCII, so that the repair of
mis-encoded texts that open_clip does first would change nothing.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anoco_edge.errors import EnvironmentMissingError, UsageError

Tokens = NDArray[np.int64]

PACKAGE = "open_clip_torch"
_FILE = "bpe_simple_vocab_16e6.txt.gz"
_END = "</w>"  # marks the end of a word
_SPECIAL = 2  # the tokens that begin and end a text
_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)|[a-z]+|[0-9]|[^\sa-z0-9]+")


class Tokenizer:
    """Turns texts into rows of token numbers, all of one length."""

    def __init__(self, merges: Sequence[tuple[str, str]], context: int) -> None:
        """`merges` come in the order of their rank; `context` is the length of a row."""
        letters = byte_letters()
        words = [*letters, *(letter + _END for letter in letters), *(a + b for a, b in merges)]
        self._numbers = {word: number for number, word in enumerate(words)}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._start, self._end = len(words), len(words) + 1
        self._context = context

    @property
    def size(self) -> int:
        """The number of different tokens."""
        return self._end + 1

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of texts, [texts, context]; the end of a text is followed by zeros.

        >>> Tokenizer([("a", "n</w>"), ("c", "an</w>")], 6)(["A can."]).tolist()
        [[514, 320, 513, 269, 515, 0]]
        """
        rows = np.zeros((len(texts), self._context), np.int64)
        for row, text in zip(rows, texts, strict=True):
            if not text.isascii():
                raise UsageError(f"{text!r} is not ASCII", hint="write English words")
            words = _WORDS.findall(" ".join(text.lower().split()))
            numbers = [self._numbers[part] for word in words for part in self._parts(word)]
            numbers = [self._start, *numbers, self._end]
            if len(numbers) > self._context:
                raise UsageError(
                    f"{text!r} has {len(numbers)} tokens, the text side takes {self._context}",
                    hint="use a shorter name",
                )
            row[: len(numbers)] = numbers
        return rows

    def _parts(self, word: str) -> list[str]:
        """Merge the letters of a word, the pair of the lowest rank first, until none is known."""
        parts = [*word[:-1], word[-1] + _END]
        while len(parts) > 1:
            pairs = list(itertools.pairwise(parts))
            first = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if first not in self._ranks:
                break
            merged: list[str] = []
            for part in parts:
                if merged and (merged[-1], part) == first:
                    merged[-1] += part
                else:
                    merged.append(part)
            parts = merged
        return parts


def open_tokenizer(vocabulary: int, context: int) -> Tokenizer:
    """Return the tokenizer of a text side with so many tokens, from the file of open_clip."""
    file = vocabulary_file()
    try:
        lines = gzip.decompress(file.read_bytes()).decode("utf-8").split("\n")
    except (OSError, EOFError, ValueError) as error:
        raise _damaged(file.name) from error
    # The first line is a title. The last merges of the file belong to a larger vocabulary.
    count = vocabulary - 2 * len(byte_letters()) - _SPECIAL
    merges = [(a, b) for a, _, b in (line.partition(" ") for line in lines[1 : count + 1])]
    tokenizer = Tokenizer(merges, context)
    if tokenizer.size != vocabulary or not all(b for _, b in merges):
        raise _damaged(file.name)
    return tokenizer


def vocabulary_file() -> Path:
    """Return the list of merges inside the installed package open_clip_torch."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError as error:
        raise EnvironmentMissingError(
            f"{PACKAGE} is needed for CLIP's vocabulary and is not installed",
            hint="install it with: pip install 'anoco-edge[winclip]'",
        ) from error
    found = [Path(str(entry.locate())) for entry in files if entry.name == _FILE]
    if not found:
        raise _damaged(_FILE)
    return found[0]


def _damaged(name: str) -> EnvironmentMissingError:
    return EnvironmentMissingError(
        f"{name} of {PACKAGE} is not CLIP's vocabulary",
        hint=f"reinstall it: pip install --force-reinstall {PACKAGE}",
    )


def byte_letters() -> list[str]:
    """Return a printable letter for each byte, in the order in which CLIP numbers them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = range(256 - len(printable))
    return [chr(byte) for byte in printable] + [chr(256 + number) for number in others]
