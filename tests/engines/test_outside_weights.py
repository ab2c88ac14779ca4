"""Every engine refuses weights outside the bundle, whatever lies where they point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from command_line import fails, ok
from graph_corpus import (
    DATA,
    NO_FILE,
    a_tensor,
    changed,
    filters,
    inner_graph,
    node,
    outside,
    replace_files,
)
from tiny_bundle import tiny_backbone

from anoco_edge.bundle import Bundle
from anoco_edge.engines import open_engine
from anoco_edge.engines.ort_gpu import OnnxRuntimeGpuEngine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import BundleError, ParityError
from anoco_edge.plans.build import build_bundle_plan

ON_CPU = ("onnxruntime", "openvino")
WEIGHTS: bytes = filters(onnx.load_from_string(tiny_backbone(64, 64, 8))).raw_data
Runtime = tuple[str, ...]
RUNTIMES: list[Runtime] = [
    ("--engine", "onnxruntime"),
    ("--engine", "openvino"),
    ("--runtime", "native"),
]


@pytest.fixture
def line(here: Path) -> Bundle:
    """Copy line.anoco into the current directory, where the weights lie too."""
    (here / "weights.bin").write_bytes(WEIGHTS)
    return Bundle.open(here / "line.anoco")


def in_two(bundle: Bundle, weights: bytes = WEIGHTS) -> Bundle:
    """Write the same backbone with its filters in a file that the manifest lists."""
    return replace_files(bundle, {"backbone.onnx": changed(outside(DATA)), DATA: weights})


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r[-1])
@pytest.mark.parametrize("where", ["weights.bin", "absolute", "../weights.bin", "unlisted"])
def test_infer_refuses_them(line: Bundle, where: str, runtime: Runtime, use_native: Path) -> None:
    if where == "unlisted":
        (line.path / "stranger.bin").write_bytes(WEIGHTS)
    place = {"absolute": str(Path("weights.bin").absolute()), "unlisted": "stranger.bin"}
    graph = changed(outside(place.get(where, where)))
    replace_files(line, {"backbone.onnx": graph})
    said = fails(4, "infer", line.path, "parts", *runtime)
    assert NO_FILE in said and "tensor 'filters'" in said and "anoco-edge export" in said


def test_verify_says_it_before_anything_is_opened(line: Bundle) -> None:
    ok("verify", line.path)
    replace_files(line, {"backbone.onnx": changed(outside("weights.bin"))})
    assert NO_FILE in fails(4, "verify", line.path)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r[-1])
def test_infer_refuses_what_an_export_never_writes(
    line: Bundle, runtime: Runtime, use_native: Path
) -> None:
    for change, words in (
        (node("Constant", value=a_tensor("weights.bin")), NO_FILE),
        (node("Loop", body=inner_graph()), "contains the operator 'Loop'"),
        (node("Gelu", "com.microsoft"), "which are not ONNX's own"),
    ):
        replace_files(line, {"backbone.onnx": changed(change)})
        assert words in fails(4, "infer", line.path, "parts", *runtime)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r[-1])
def test_listed_weights_are_used_and_their_hash_is_checked(
    line: Bundle, runtime: Runtime, use_native: Path, tmp_path: Path
) -> None:
    bundle = in_two(line)
    before = ok("infer", bundle.path, "parts", *runtime, "--json").json["results"]
    assert len(before) == 3 and all(row["score"] > 0 for row in before)
    changed_weights = WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])
    (bundle.path / DATA).write_bytes(changed_weights)  # the result of its self-test is stored
    assert f"{DATA} is not what was written" in fails(4, "infer", bundle.path, "parts", *runtime)


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r[-1])
def test_weights_behind_a_link_are_refused(
    line: Bundle, runtime: Runtime, use_native: Path
) -> None:
    bundle = in_two(line)
    (bundle.path / DATA).rename(bundle.path / "elsewhere")
    (bundle.path / DATA).symlink_to("elsewhere")
    assert f"{DATA} is a link" in fails(4, "infer", bundle.path, "parts", *runtime)


@pytest.mark.parametrize("name", ON_CPU)
def test_a_self_test_is_remembered_for_these_weights_only(
    line: Bundle, name: str, empty_cache: None
) -> None:
    bundle = in_two(line)
    check_engine(bundle, open_engine(name, bundle))
    assert check_engine(bundle, open_engine(name, bundle)).remembered
    # Listed and hashed, but not the weights that were exported.
    other = in_two(bundle, bytes(len(WEIGHTS)))
    with pytest.raises(ParityError, match="computes other features"):
        check_engine(other, open_engine(name, other))


def test_the_graph_is_the_one_of_that_name_wherever_it_is_listed(tiny_bundle: Bundle) -> None:
    graph = (tiny_bundle.path / "backbone.onnx").read_bytes()
    strange = {"backbone.onnx-old": b"1", DATA: b"2", "backbone.onnx": graph}
    bundle = replace_files(tiny_bundle, strange)
    assert [record.path for record in bundle.graph_files()] == ["backbone.onnx", DATA]
    assert bundle.graph() == bundle.path / "backbone.onnx"


def test_plans_and_other_providers_refuse_them_too(
    line: Bundle, trt: object, empty_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = replace_files(line, {"backbone.onnx": changed(outside("weights.bin"))})
    loaders: list[Callable[[], object]] = [
        lambda: build_bundle_plan(bundle, "tensorrt"),
        lambda: OnnxRuntimeGpuEngine("onnxruntime-cuda", bundle, None),  # type: ignore[arg-type]
        lambda: OnnxRuntimeGpuEngine("onnxruntime-tensorrt", bundle, None),  # type: ignore[arg-type]
    ]
    for load in loaders:
        with pytest.raises(BundleError, match=NO_FILE):
            load()


def test_a_location_is_never_looked_at(line: Bundle) -> None:
    """The message is the same whether the file exists or not, so it reveals nothing about it."""
    said = []
    for where in ("/etc/shadow", "/no/such/file"):
        bundle = replace_files(line, {"backbone.onnx": changed(outside(where))})
        with pytest.raises(BundleError) as caught:
            bundle.graph()
        said.append(str(caught.value).replace(where, ""))
    assert said[0] == said[1]
