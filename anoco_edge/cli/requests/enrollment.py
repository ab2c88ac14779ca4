"""The pictures that `anoco-edge enroll` is asked to teach."""

from __future__ import annotations

from pathlib import Path

from anoco_edge.errors import UsageError


def find_references(pictures: list[str], results: Path | None, ids: list[int]) -> list[str]:
    """Find the pictures that were named, or those with these ids in the results of a run."""
    if results is not None:
        if pictures:
            raise UsageError("pictures and --from-results together", hint="give one or the other")
        if not ids:
            raise UsageError("--from-results needs --id", hint="the id column of the report")
        from anoco_edge.results.past_pictures import picture_of

        return [str(picture_of(results, number)) for number in ids]
    if ids:
        raise UsageError("--id needs --from-results", hint="give the run's results.jsonl")
    if not pictures:
        raise UsageError("there are no reference pictures", hint="give pictures of good parts")
    from anoco_edge.sources.files import find_pictures

    return find_pictures(pictures, "teach from it with: anoco-edge infer --teach K")
