"""One ONNX file for other runtimes: it takes pixels, and gives score, energy grid and map.

The bank is inside the file. The graph computes what the detector computes, but densely: about six
matrices of inspected patches x bank rows exist at once, for every picture of the batch. The
threshold is not part of the graph, since it may change. The metadata of the file (metadata_props)
hold it, with everything that a caller must know to prepare a picture.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge import __version__
from anoco_edge.bundle import Bundle, InputContract, Product
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.images.preprocess import Placement, place
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.scoring.onnx_scorer import directions
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge.storage.atomic_files import sync_folder, writing
from anoco_edge.storage.durability import committed
from anoco_edge.storage.staging import staging
from anoco_edge_export.lazy_import import lazy_import
from anoco_edge_export.map_graph import query_part, result_part
from anoco_edge_export.onnx_graph import (
    DATA_SUFFIX,
    EXTERNAL_ABOVE,
    OUTPUT,
    save_graph,
)
from anoco_edge_export.onnx_version import IR_VERSION, OPSET
from anoco_edge_export.scoring_graph import Nodes, scoring_graph

_RESIZE = (
    "Pillow's BILINEAR (antialiased) of the EXIF-oriented 8-bit RGB picture; "
    "16-bit pictures are shifted right by 8 first"
)


def write_single_file(bundle: Bundle, product: Product | str | None, path: Path) -> Path:
    """Write the graph to `path`, whole or not at all; above 2 GB its tensors are in `path`.data.

    >>> write_single_file(Bundle.open("missing.anoco"), None, Path("detector.onnx"))
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: there is no bundle at missing.anoco; make one with: ...
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name a file, such as detector.onnx")
    model = _compose(bundle, product)
    with writing(str(path)), staging(path, follow_link=False) as stage:
        files = save_graph(model, stage.building, EXTERNAL_ABOVE)
        _check(files[0])
        _move_in(files, path)
    return path


def metadata(bundle: Bundle, product: Product) -> dict[str, str]:
    """Return the metadata of the file as text.

    They say where the file comes from, how to prepare a picture for it, and from which score on a
    part is anomalous.
    """
    manifest, weights = bundle.manifest, bundle.manifest.backbone.weights
    contract, placement = manifest.input, _placement(manifest.input, product)
    backbone, threshold = manifest.backbone, product.threshold
    first = product.references[0]
    facts: dict[str, object] = {
        "version": __version__,
        "tools": json.dumps(manifest.tools, sort_keys=True),
        "created": manifest.created,
        "recipe": backbone.id,
        "architecture": backbone.architecture,
        "tap": backbone.tap,
        "feature_norm": backbone.feature_norm,
        "feature_pooling": backbone.pooling,
        "precision": backbone.precision,
        "backbone_sha256": bundle.file("backbone.onnx").sha256,
        "weights_source": weights.source,
        "weights_sha256": weights.sha256,
        "weights_license": weights.license,
        "weights_random": str(weights.random).lower(),
        "product": product.name,
        "generation": product.generation,
        "bank_sha256": product.bank.sha256 if product.bank else "",
        "lambda": _lambda(bundle, product),
        "floor": product.floor,
        "metric": product.metric,
        "pooling": product.pooling,
        "min_area": product.min_area,
        "threshold": "" if threshold.value is None else threshold.value,
        "threshold_kind": threshold.kind,
        "input": f"uint8 RGB, batch x {contract.height} x {contract.width} x 3",
        "resize": _RESIZE,
        "fit": contract.fit,
        "fill": ",".join(map(str, contract.fill)),
        "placement": f"{placement.left},{placement.top},{placement.width},{placement.height}",
        "assumes": f"pictures of the shape of the references, {first.width}x{first.height}, "
        "resized to the width and height of the placement (left,top,width,height); "
        "float32 products without TF32; a score of NaN is an error, not a verdict",
    }
    return {f"anoco_edge.{name}": str(fact) for name, fact in facts.items()}


def _lambda(bundle: Bundle, product: Product) -> float:
    """Return the number in the graph, which for a relative lambda depends on the bank."""
    if product.lambda_kind == "absolute":
        return product.lam
    return product.parameters(bundle.bank(product).references).lam


# ---- the graph


def _compose(bundle: Bundle, product: Product | str | None) -> Any:
    if not isinstance(product, Product):
        product = bundle.product(product)
    if bundle.manifest.input.pixels != "uint8":
        raise UsageError(
            f"{bundle.path.name} takes float32 pixels, for DeepStream; a single file takes uint8",
            hint="export the backbone again without `pixels`",
        )
    if product.tta == "paper":
        raise UsageError(
            f"product {product.name!r} looks at every picture in many views, a single file at one",
            hint="choose test-time augmentation 'none' or 'references' for it",
        )
    if product.tiles is not None or product.baseline is not None:
        what = "tiles" if product.tiles is not None else "a baseline"
        raise UsageError(
            f"product {product.name!r} uses {what}, which a single file cannot hold",
            hint="use the bundle itself, or a product without",
        )
    references = bundle.bank(product).references
    _check_bank(references.features.shape)
    contract = bundle.manifest.input
    scored = PatchMask.of(bundle, product).scored(_placement(contract, product))
    settings = product.parameters(references)

    model = _backbone(bundle)
    scoring = _scoring({f"scoring/{settings.metric}", "scoring/q_norm"})
    before = query_part(contract, scored, f"backbone/{OUTPUT}")
    after = result_part(
        contract, scored, product.pooling, f"scoring/{settings.metric}", "scoring/q_norm"
    )
    graph = model.graph
    graph.name = "anoco_detector"
    graph.node.extend([*_nodes(before[0]), *scoring.node, *_nodes(after[0])])
    graph.initializer.extend(scoring.initializer)
    baked = {
        "reference_units": directions(references),
        "reference_norms": references.norms,
        "lambda": np.array(settings.lam, np.float32),
        "floor": np.array(settings.floor, np.float32),
    }
    graph.initializer.extend(_tensors({**baked, **before[1], **after[1]}))
    _set_outputs(graph, contract)
    own = {p.key: p.value for p in model.metadata_props}
    props = {**own, **metadata(bundle, product)}
    lazy_import("onnx").helper.set_model_props(model, dict(sorted(props.items())))
    model.producer_name, model.producer_version = "anoco-edge", __version__
    return model


def _check_bank(shape: tuple[int, ...]) -> None:
    """Refuse a bank that is too large for one tensor of an ONNX file."""
    rows, dim = shape
    if 4 * rows * dim > EXTERNAL_ABOVE:
        raise UsageError(
            f"the bank of {rows} patches is {4e-9 * rows * dim:.1f} GB in float32, "
            "more than a tensor of an ONNX file can hold",
            hint="enrol fewer references, or use the bundle itself",
        )


def _placement(contract: InputContract, product: Product) -> Placement:
    """Return where pictures lie in the input; the graph inspects the patches of this place."""
    places = [place(contract, r.width, r.height) for r in product.references]
    if len({(p.left, p.top, p.width, p.height) for p in places}) > 1:
        sizes = sorted({f"{r.width}x{r.height}" for r in product.references})
        raise UsageError(
            f"with letterbox the fill depends on the picture's shape, and product "
            f"{product.name!r} has references of {', '.join(sizes)}",
            hint="enroll pictures of one size, or export the backbone with `fit='stretch'`",
        )
    return places[0]


def _backbone(bundle: Bundle) -> Any:
    """Return the bundle's backbone with a prefix on all names, so that they cannot collide."""
    onnx = lazy_import("onnx")
    graph = bundle.graph()
    model = onnx.load_from_string(graph) if isinstance(graph, bytes) else onnx.load(graph)
    opsets = {o.domain: o.version for o in model.opset_import}
    if model.ir_version != IR_VERSION or opsets != {"": OPSET}:
        raise BundleError(
            f"backbone.onnx has IR {model.ir_version} and operators {opsets}, "
            f"not IR {IR_VERSION} and opset {OPSET}",
            hint="export the bundle again",
        )
    onnx.compose.add_prefix(model, "backbone/", rename_inputs=False, inplace=True)
    return model


def _scoring(wanted: set[str]) -> Any:
    """Return the scoring graph with names under `scoring/`, cut to what `wanted` needs."""
    onnx = lazy_import("onnx")
    graph = onnx.load_from_string(scoring_graph()).graph
    onnx.compose.add_prefix_graph(graph, "scoring/", rename_inputs=False, inplace=True)
    needed, kept = set(wanted), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    return onnx.helper.make_graph(kept[::-1], "scoring", [], [], initializers)


def _nodes(steps: Nodes) -> list[Any]:
    make = lazy_import("onnx").helper.make_node
    return [
        make(op, list(sources), targets.split(), name=targets.split()[0], **attributes)
        for op, sources, targets, attributes in steps
    ]


def _tensors(constants: Mapping[str, NDArray[Any]]) -> list[Any]:
    make = lazy_import("onnx").numpy_helper.from_array
    return [make(value, name) for name, value in constants.items()]


def _set_outputs(graph: Any, contract: InputContract) -> None:
    onnx = lazy_import("onnx")
    batch = graph.input[0].type.tensor_type.shape.dim[0]
    batch.dim_param = batch.dim_param or "batch"
    shapes: dict[str, tuple[int, ...]] = {
        "score": (),
        "energy": (contract.rows, contract.cols),
        "map": (contract.height, contract.width),
    }
    del graph.output[:]
    for name, shape in shapes.items():
        dims = [batch.dim_param, *shape]
        value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        graph.output.append(value)


# ---- checking and writing


def _check(path: Path) -> None:
    """Raise BundleError for a file that onnx's checker or ONNX Runtime refuses."""
    onnx = lazy_import("onnx")
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise BundleError(
            f"the backbone and the scoring do not make one valid graph: {error}",
            hint="export the bundle again",
        ) from None
    open_session(path, "the single file")


def _data_of(path: Path) -> Path:
    return path.with_name(path.name + DATA_SUFFIX)


def _move_in(files: list[Path], path: Path) -> None:
    """Move the files to `path`.

    Graph and tensors must belong together, so an old graph is removed before its tensors change.
    """
    for file in files:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    model, *data = files
    if data:
        path.unlink(missing_ok=True)
        data[0].replace(_data_of(path))
    model.replace(path)
    with committed():
        if not data:
            _data_of(path).unlink(missing_ok=True)
        sync_folder(path.parent)
