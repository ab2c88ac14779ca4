"""The trusted comment of a signed bundle: when it was signed, at which generations, and by whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_GENERATION = re.compile(r"([^=,]+)=([0-9]{1,18})")


@dataclass(frozen=True)
class SignedComment:
    """What a trusted comment says; one that minisign wrote has only the time.

    >>> text = SignedComment(1795058929, {"part": 3}, signer="press-3").text("a.txt")
    >>> text.split("\\t")
    ['timestamp:1795058929', 'file:a.txt', 'hashed', 'generations:part=3', 'signer:press-3']
    >>> SignedComment.parse(text).generations
    {'part': 3}
    """

    timestamp: int
    """Seconds since 1970. It never falls from one signature of a bundle to the next."""
    generations: Mapping[str, int] = field(default_factory=dict)
    signer: str = ""
    after: str = ""
    """The number of the key that had signed what was changed then."""

    @classmethod
    def parse(cls, text: str) -> SignedComment:
        """Read the trusted comment of a signature."""
        parts = (part.partition(":") for part in text.split("\t"))
        values = {key: value for key, _, value in parts}
        timestamp = values.get("timestamp", "")
        generations = map(_GENERATION.fullmatch, values.get("generations", "").split(","))
        return cls(
            int(timestamp) if _TIMESTAMP.fullmatch(timestamp) else 0,
            {found[1]: int(found[2]) for found in generations if found is not None},
            values.get("signer", ""),
            values.get("after", ""),
        )

    def text(self, file: str) -> str:
        """Return the text to sign; it begins as that of minisign does."""
        generations = ",".join(f"{name}={number}" for name, number in self.generations.items())
        parts = [f"timestamp:{self.timestamp}", f"file:{file}", "hashed"]
        # minisign takes 8 kB: the generations of very many products are left out
        parts += [f"generations:{generations}"] if 0 < len(generations.encode()) < 6000 else []
        parts += [f"signer:{self.signer}"] if self.signer else []
        parts += [f"after:{self.after}"] if self.after else []
        return "\t".join(parts)

    @property
    def time(self) -> str:
        """The time in UTC as ISO 8601.

        >>> SignedComment(0).time
        '1970-01-01T00:00:00+00:00'
        """
        return datetime.fromtimestamp(self.timestamp, timezone.utc).isoformat()
