"""Fetches a weights file from the Hugging Face hub.

Where that fails, the error says which file to fetch by hand and where to put it.
"""

from __future__ import annotations

import errno
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anoco_edge.errors import AnocoError, EnvironmentMissingError, StorageError
from anoco_edge.machine import cache_folder
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import HubWeights

_WAIT = 5.0  # seconds to wait for an answer; by default the library tries for minutes
_TERMS = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "README.MD")
_SUFFIXES = (".safetensors", ".pth")
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


def kept_file(backbone_id: str) -> Path | None:
    """Return the file that was put by hand where the errors of `hub_file` say, or None."""
    for suffix in _SUFFIXES:
        file = _place(backbone_id).with_suffix(suffix)
        if file.is_file():
            return file
    return None


def hub_file(
    backbone_id: str, wanted: HubWeights, progress: Callable[[str], None] = lambda _: None
) -> Path:
    """Return the recipe's file from the library's cache or the network, its license beside it."""
    hub = lazy_import("huggingface_hub")
    cached = hub.try_to_load_from_cache(wanted.repository, wanted.file)
    trouble = _trouble()
    if isinstance(cached, str):
        if not any(p.name.upper().startswith(_TERMS[:-1]) for p in Path(cached).parent.iterdir()):
            with _quiet():  # another program fetched the weights without their license
                _fetch_terms(hub, wanted.repository, trouble)
        return Path(cached)
    with _quiet():
        try:
            # The metadata is asked for first, because the download repeats a failing request.
            url = hub.hf_hub_url(wanted.repository, wanted.file)
            hub.get_hf_file_metadata(url, timeout=_WAIT)
        except trouble as error:
            raise _explained(error, backbone_id, wanted, "cannot be reached for") from error
        try:
            file = Path(_download(hub, wanted, progress))
        except trouble as error:
            raise _explained(error, backbone_id, wanted, "broke off sending") from error
        _fetch_terms(hub, wanted.repository, trouble)
    return file


def _download(hub: Any, wanted: HubWeights, progress: Callable[[str], None]) -> str:
    download = partial(hub.hf_hub_download, wanted.repository, wanted.file, etag_timeout=_WAIT)
    if "tqdm_class" in inspect.signature(hub.hf_hub_download).parameters:
        bar = _watch(f"fetching {wanted.file} of {wanted.repository}", progress)
        return str(download(tqdm_class=bar))
    return str(download())


def _watch(what: str, progress: Callable[[str], None]) -> Any:
    """Make a progress bar that prints nothing, and that ends a download that restarts forever."""
    base: Any = lazy_import("huggingface_hub.utils").tqdm

    class Watch(base):  # type: ignore[misc]  # the library is Any to mypy
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})
            self.received = 0
            self.shown = ""

        def update(self, n: float | None = 1) -> Any:
            self.received += max(int(n or 0), 0)
            if self.total:
                if self.received > 3 * self.total:
                    raise OSError(f"{self.received} bytes came for a file of {self.total}")
                text = f"{what}: {min(100 * self.received // int(self.total), 100)} %"
                if text != self.shown:
                    progress(text)
                self.shown = text
            return super().update(n)

    return Watch


def _fetch_terms(hub: Any, repository: str, trouble: tuple[type[Exception], ...]) -> None:
    """Fetch the license files of the repository; the weights are usable without them too."""
    try:
        listed = hub.HfApi().model_info(repository, timeout=_WAIT).siblings or []
        for name in [entry.rfilename for entry in listed]:
            if name.upper().startswith(_TERMS):
                hub.hf_hub_download(repository, name, etag_timeout=_WAIT)
    except trouble:
        return


def _trouble() -> tuple[type[Exception], ...]:
    """Return what the library raises when it cannot get a file, with any HTTP client it uses."""
    errors = lazy_import("huggingface_hub.errors")
    transport = errors.HfHubHTTPError.__bases__[0]
    # The accelerated transfer reports a broken network as a RuntimeError.
    return (OSError, ValueError, RuntimeError, errors.EntryNotFoundError, transport)


def _explained(
    error: Exception, backbone_id: str, wanted: HubWeights, otherwise: str
) -> AnocoError:
    """Turn an error of the library into ours; `otherwise` describes an error that is unknown."""
    errors = lazy_import("huggingface_hub.errors")
    what = f"{wanted.file} of {wanted.repository}"
    place = _place(backbone_id)
    if isinstance(error, OSError) and error.errno in _DISK:
        return StorageError(
            f"{what} cannot be stored: {error.strerror}", hint="make room, or set HF_HOME"
        )
    by_hand = f"fetch {what} and put it at {place}, or pass it with `weights=FILE`"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError) or status in (401, 403):
        return EnvironmentMissingError(
            f"the hub gives {what} only to those who accepted its terms",
            hint="accept them on that repository's page and log in with `hf auth login`; "
            f"or {by_hand}",
        )
    if status == 404:
        return EnvironmentMissingError(f"the hub has no {what}", hint=by_hand)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return EnvironmentMissingError(
            f"{what} is not here, and HF_HUB_OFFLINE forbids to fetch it", hint=by_hand
        )
    return EnvironmentMissingError(f"the hub {otherwise} {what}", hint=by_hand)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's own warnings, so that the user reads one message."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _place(backbone_id: str) -> Path:
    return cache_folder() / "weights" / f"{backbone_id}{_SUFFIXES[0]}"
