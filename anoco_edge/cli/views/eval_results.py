"""What `anoco-edge eval` says and writes about its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anoco_edge.cli import console
from anoco_edge.errors import AnocoError
from anoco_edge.machine import cores, machine, versions

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle
    from anoco_edge_calibration.evaluation import Evaluation, EvaluationPlan
    from anoco_edge_calibration.evaluation.feature_cache import CachedEngine
    from anoco_edge_calibration.evaluation.unit import EvaluationSetup

_PACKAGES = ("numpy", "pillow", "onnxruntime", "onnxruntime-gpu", "openvino")
_MOST_WARNINGS = 20


def effective(
    plan: EvaluationPlan, setup: EvaluationSetup, device: str, engine: str
) -> dict[str, Any]:
    """Everything the figures depend on."""
    from anoco_edge.bundle import Product
    from anoco_edge.scoring import choose_scorer

    manifest, like = setup.bundle.manifest, setup.like
    backbone, given = manifest.backbone, setup.settings.fields
    names = {"lambda": "lam"} | {n: n for n in ("floor", "metric", "pooling", "tta", "bank_dtype")}
    taught = {
        name: given.get(
            name, getattr(like, own) if like else Product.model_fields[own].get_default()
        )
        for name, own in names.items()
    }
    if like is not None:
        kept = {"region", "mask", "tiles", "coreset", "tta_seed", "any_size"}
        taught |= {"product": like.name, **like.model_dump(mode="json", include=kept)}
    return {
        "shots": list(plan.shots),
        "seeds": plan.seeds,
        "scorers": [variant.name for variant in setup.variants],
        **taught,
        "max_patches": setup.settings.max_patches,
        "bundle": setup.bundle.path.name,
        "bundle_sha256": manifest.checksum,
        "backbone": f"{backbone.id} ({backbone.tap}, {backbone.weights.source})",
        "size": f"{manifest.input.width}x{manifest.input.height} {manifest.input.fit}",
        "precision": backbone.precision,
        "engine": engine,
        "device": device,
        "scorer": "{} ({})".format(*choose_scorer(setup.scorer)),
        "threads": setup.threads or cores(),
        "batch": setup.batch,
        **machine(),
        "versions": versions(_PACKAGES),
    }


def write(folder: Path, result: Evaluation, settings: dict[str, Any]) -> None:
    """results.json and results.md."""
    from anoco_edge.diagnostics.bench.tables import facts
    from anoco_edge.storage.atomic_files import write_atomic, writing
    from anoco_edge_calibration.evaluation.tables import evaluation_markdown

    document = {
        "settings": settings,
        "rows": [row.to_dict() for row in result.rows],
        "problems": [vars(problem) for problem in result.problems],
        "remarks": result.remarks,
    }
    lines = ["Percent; means over seeds ± their deviation, the best scorer in bold.", ""]
    lines += [evaluation_markdown(result.rows), "", *(f"- {remark}" for remark in result.remarks)]
    lines += [f"- left out: {problem.what}" for problem in result.problems]
    plain = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in settings.items()}
    lines += [*(f"- {fact}" for fact in facts(plain)), ""]
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=1, allow_nan=False)
        write_atomic(folder / "results.json", text.encode())
        write_atomic(folder / "results.md", "\n".join(lines).encode("utf-8", "backslashreplace"))


def tell(result: Evaluation, engine: CachedEngine, folder: Path | None) -> None:
    """What is missing from the figures, and what the cache did."""
    from anoco_edge_calibration.evaluation.feature_cache import size_mb

    for problem in result.problems[:_MOST_WARNINGS]:
        console.warn(problem.what)
    if len(result.problems) > _MOST_WARNINGS:
        console.warn(f"and {len(result.problems) - _MOST_WARNINGS} more: see results.json")
    for remark in result.remarks:
        console.note(remark)
    use = engine.use
    said = f"features: {use.computed} windows computed, {use.loaded} from the cache"
    if use.damaged:
        said += f", {use.damaged} entries of it were damaged"
    if folder is not None:
        said += f"; {folder} holds {size_mb(folder):.0f} MB, delete it when it is too large"
    console.note(said)


def show(result: Evaluation, name: str, bundle: Bundle) -> None:
    """The table."""
    from anoco_edge_calibration.evaluation.tables import evaluation_table

    title = f"{name}, {bundle.manifest.backbone.id}: percent, means over seeds"
    console.out.print(evaluation_table(result.rows, title))


def leave(result: Evaluation) -> None:
    """With an error where something could not be measured."""
    if result.problems:
        count = len(result.problems)
        which = "" if count == 1 else ", the first"
        raise AnocoError(
            f"{count} thing{'s' * (count > 1)} could not be measured{which}: "
            f"{result.problems[0].what}"
        )
