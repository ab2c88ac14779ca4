"""What `anoco-edge eval` prints and writes about its figures."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anoco_edge.bundle import Bundle, Product
from anoco_edge.cli.console import emit_json, note, out, plural, warn
from anoco_edge.errors import AnocoError
from anoco_edge.machine import cores, machine, versions
from anoco_edge.teaching.drafts import rotations_of
from anoco_edge.teaching.near_duplicates import MERGE_DISTANCE

if TYPE_CHECKING:
    from anoco_edge_calibration.evaluation import Evaluation
    from anoco_edge_calibration.evaluation.bundle_evaluation import (
        BundleEvaluation,
        EvaluationOutcome,
    )
    from anoco_edge_calibration.evaluation.unit import EvaluationSetup

_PACKAGES = ("numpy", "pillow", "onnxruntime", "onnxruntime-gpu", "openvino")
_MOST_WARNINGS = 20


def report_evaluation(
    evaluation: BundleEvaluation,
    outcome: EvaluationOutcome,
    dataset: Path,
    folder: Path,
    started: float,
    *,
    json_: bool,
) -> None:
    """Print the figures, then write results.json, results.md and report.html to `folder`."""
    from anoco_edge_calibration.evaluation.eval_report import write_eval_report

    result, data = outcome.result, evaluation.plan.dataset
    settings = {
        "dataset": str(dataset),
        "layout": data.layout,
        "categories": [category.name for category in data.categories],
        "turn_test": data.turn_seed,
        **effective_settings(evaluation),
        "windows": vars(evaluation.engine.use),
        "seconds": round(time.perf_counter() - started, 1),
    }
    _show_remarks(evaluation, result)
    if json_:
        emit_json([row.to_dict() for row in result.rows])
    else:
        _show_table(result, data.name, evaluation.setup.bundle)
    # The figures are printed first, so that minutes of work are not lost where the folder cannot
    # be written.
    _write(folder, result, settings)
    write_eval_report(folder / "report.html", data.name, result, settings, outcome.worst)
    note(f"results: {folder / 'results.json'}, {folder / 'results.md'}, {folder / 'report.html'}")


def effective_settings(evaluation: BundleEvaluation) -> dict[str, object]:
    """Return everything that the figures depend on, as it stands in results.json."""
    from anoco_edge.scoring import choose_scorer

    setup, plan = evaluation.setup, evaluation.plan
    manifest = setup.bundle.manifest
    backbone = manifest.backbone
    return {
        "shots": list(plan.shots),
        "seeds": plan.seeds,
        "scorers": [variant.name for variant in setup.variants],
        **_product_settings(setup),
        "max_patches": setup.settings.max_patches,
        "bundle": setup.bundle.path.name,
        "bundle_sha256": manifest.checksum,
        "backbone": f"{backbone.id} ({backbone.tap}, {backbone.weights.source})",
        "size": f"{manifest.input.width}x{manifest.input.height} {manifest.input.fit}",
        "precision": backbone.precision,
        "engine": evaluation.engine_words,
        "device": evaluation.request.device,
        "scorer": "{} ({})".format(*choose_scorer(setup.scorer)),
        "threads": setup.threads or cores(),
        "batch": setup.batch,
        **machine(),
        "versions": versions(_PACKAGES),
    }


def _product_settings(setup: EvaluationSetup) -> dict[str, object]:
    """Return the settings by which each category is taught."""
    like, given = setup.like, setup.settings.fields
    same = ("lambda_kind", "floor", "metric", "pooling", "tta", "bank_dtype")
    names = {"lambda": "lam"} | {n: n for n in same}
    settings = {
        name: given.get(
            name, getattr(like, own) if like else Product.model_fields[own].get_default()
        )
        for name, own in names.items()
    }
    settings["rotations"] = rotations_of(setup.settings, like)
    settings["flips"] = given.get("flips", like.flips if like else False)
    if settings["rotations"] or settings["flips"]:
        known = like.merge_distance if like and like.has_turned_views else MERGE_DISTANCE
        settings["merge_distance"] = given.get("merge_distance", known)
    if like is not None:
        kept = {"region", "mask", "tiles", "coreset", "tta_seed", "any_size"}
        settings |= {"product": like.name, **like.model_dump(mode="json", include=kept)}
    return settings


def _write(folder: Path, result: Evaluation, settings: dict[str, object]) -> None:
    """Write results.json and results.md."""
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


def _show_remarks(evaluation: BundleEvaluation, result: Evaluation) -> None:
    """Say what is missing from the figures, and what the cache of features did."""
    from anoco_edge_calibration.evaluation.feature_cache import size_mb

    for problem in result.problems[:_MOST_WARNINGS]:
        warn(problem.what)
    if len(result.problems) > _MOST_WARNINGS:
        warn(f"and {len(result.problems) - _MOST_WARNINGS} more: see results.json")
    for remark in result.remarks:
        note(remark)
    use, folder = evaluation.engine.use, evaluation.request.features
    text = f"features: {use.computed} windows computed, {use.loaded} from the cache"
    if use.damaged:
        text += f", {use.damaged} entries of it were damaged"
    if folder is not None:
        text += f"; {folder} holds {size_mb(Path(folder)):.0f} MB, delete it when it is too large"
    note(text)


def _show_table(result: Evaluation, name: str, bundle: Bundle) -> None:
    from anoco_edge_calibration.evaluation.tables import evaluation_table

    title = f"{name}, {bundle.manifest.backbone.id}: percent, means over seeds"
    out.print(evaluation_table(result.rows, title))


def fail_on_problems(result: Evaluation) -> None:
    """End the command with an error where something could not be measured."""
    if result.problems:
        count = len(result.problems)
        which = "" if count == 1 else ", the first"
        raise AnocoError(
            f"{plural(count, 'thing')} could not be measured{which}: {result.problems[0].what}",
            hint="the other figures hold without it; results.json names everything left out",
        )
