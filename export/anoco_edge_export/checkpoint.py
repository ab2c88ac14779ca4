"""Reads a checkpoint without running code from it, and without a second copy in memory."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

from anoco_edge.errors import UsageError
from anoco_edge.storage.regular_file import open_regular
from anoco_edge_export.families import StateDict
from anoco_edge_export.lazy_import import lazy_import

_IN_A_FOLDER = "model.safetensors"
_WRAPPERS = ("model", "state_dict")


def find_checkpoint(place: Path) -> Path:
    """Return `place` if it is a file, or the `model.safetensors` in it if it is a folder."""
    if not place.is_dir():
        return place
    if (place / _IN_A_FOLDER).is_file():
        return place / _IN_A_FOLDER
    if (place / f"{_IN_A_FOLDER}.index.json").is_file():
        raise UsageError(
            f"the weights in {place} are split over several files",
            hint=f"save them as one {_IN_A_FOLDER} and pass that",
        )
    raise UsageError(f"folder {place} holds no {_IN_A_FOLDER}", hint="pass the file itself")


def read_checkpoint(file: Path) -> StateDict:
    """Return the tensors of a safetensors or torch file; they stay on disk where possible."""
    start = _start(file)
    if start.startswith(b"version https://git-lfs"):
        raise UsageError(
            f"{file.name} is a Git LFS pointer, not the file itself", hint="run git lfs pull"
        )
    if file.name.endswith(".index.json"):
        raise UsageError(
            f"{file.name} lists weights that are split over several files",
            hint=f"save them as one {_IN_A_FOLDER} and pass that",
        )
    if not start:
        raise UsageError(f"{file.name} is empty", hint="fetch it again")
    torch = lazy_import("torch")
    safetensors = lazy_import("safetensors")
    try:
        if start[8:9] == b"{":  # safetensors: eight bytes of length, then JSON
            return dict(lazy_import("safetensors.torch").load_file(file))
        zipped = zipfile.is_zipfile(file)  # only this format of torch can be memory-mapped
        if zipped:
            _refuse_program(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says the same in one line
            state = torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except (
        safetensors.SafetensorError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        RuntimeError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
        OSError,
    ) as error:
        if isinstance(error, UsageError):
            raise
        if isinstance(error, safetensors.SafetensorError):
            raise UsageError(
                f"{file.name} is a broken safetensors file: {error}", hint="fetch it again"
            ) from error
        # torch's own message explains how to switch its safety off, which nobody should do.
        raise UsageError(
            f"{file.name} cannot be read as weights without running code from it",
            hint="pass a .safetensors file, or a .pth that holds nothing but a state dict",
        ) from error
    return _plain(state, file.name)


def _plain(state: object, name: str) -> StateDict:
    """Return the state dict, also from inside `{"model": ...}` beside numbers and texts."""
    if isinstance(state, Mapping):
        inner = [key for key in _WRAPPERS if isinstance(state.get(key), Mapping)]
        rest = [value for key, value in state.items() if key not in inner]
        if len(inner) == 1 and all(isinstance(v, int | float | str | None) for v in rest):
            state = state[inner[0]]
    torch = lazy_import("torch")
    if not isinstance(state, Mapping) or not all(
        isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items()
    ):
        raise UsageError(
            f"{name} is not a plain state dict (names and tensors, nothing else)",
            hint="save model.state_dict() and pass that file",
        )
    return dict(state)


def _refuse_program(file: Path) -> None:
    """Refuse TorchScript, such as OpenAI's CLIP: torch would run it to read the tensors."""
    with zipfile.ZipFile(file) as archive:
        if any(entry.partition("/")[2].startswith("code/") for entry in archive.namelist()):
            raise UsageError(
                f"{file.name} is a TorchScript program, not a state dict",
                hint="if you trust it: torch.save(torch.jit.load(FILE).state_dict(), 'plain.pth'), "
                "and pass that; or pass a .safetensors file",
            )


def _start(file: Path) -> bytes:
    try:
        with open_regular(file) as stream:
            return stream.read(64)
    except OSError as error:
        raise UsageError(
            f"weights file {file} cannot be read: {error.strerror}", hint="check the path"
        ) from error
