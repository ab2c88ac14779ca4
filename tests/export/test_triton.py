"""The config in the Triton repository describes the model, as read by Triton's own protobuf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.teaching import NewPicture, Teacher
from anoco_edge_export import single_file
from anoco_edge_export.single_file import metadata, write_single_file
from anoco_edge_export.triton import triton_config, write_triton_repository


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    bundle = make_tiny_bundle(tmp_path_factory.mktemp("one") / "t.anoco", size=(96, 64))
    Teacher.open(bundle.path).enroll([NewPicture.from_array("a.png", textured_picture(1))])
    return bundle


@pytest.fixture(scope="module")
def single(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("single") / "detector.onnx"
    return write_single_file(bundle, None, path).read_bytes()


def parse(text: str) -> Any:
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    return text_format.Parse(text, config.ModelConfig())


def shapes(values: Any) -> dict[str, tuple[str, list[int]]]:
    """Return type and dimensions, without the batch, of a graph's inputs or outputs."""
    types = {onnx.TensorProto.UINT8: "TYPE_UINT8", onnx.TensorProto.FLOAT: "TYPE_FP32"}
    found = {}
    for value in values:
        kind = value.type.tensor_type
        batch, *dims = kind.shape.dim
        assert batch.dim_param and not batch.dim_value
        found[value.name] = (types[kind.elem_type], [d.dim_value for d in dims])
    return found


def declared(values: Any) -> dict[str, tuple[str, list[int]]]:
    """Return the same of a config as the model sees it, with its reshapes applied."""
    kinds = {v.name: v.DESCRIPTOR.fields_by_name["data_type"].enum_type for v in values}
    return {
        v.name: (
            kinds[v.name].values_by_number[v.data_type].name,
            list(v.reshape.shape if v.HasField("reshape") else v.dims),
        )
        for v in values
    }


@pytest.mark.parametrize(
    ("max_batch", "preferred"), [(8, [4, 8]), (5, [2, 5]), (2, [2]), (1, None)]
)
def test_the_config_says_what_the_model_has(
    max_batch: int, preferred: list[int] | None, bundle: Bundle, single: bytes, tmp_path: Path
) -> None:
    contract = bundle.manifest.input
    said = metadata(bundle, bundle.product()) | {
        "odd": 'a "quoted" \\ back\nslash, \u00fcml\u00e4ut'
    }
    files = write_triton_repository(
        tmp_path, single, name="nuts", contract=contract, max_batch=max_batch, parameters=said
    )
    folder = tmp_path / "nuts"
    assert files == [folder / "1" / "model.onnx", folder / "config.pbtxt"]
    graph = onnx.load(files[0]).graph
    config = parse(files[1].read_text())
    assert (config.name, config.platform) == ("nuts", "onnxruntime_onnx")
    assert config.max_batch_size == max_batch
    assert declared(config.input) == shapes(graph.input)
    assert declared(config.output) == shapes(graph.output)
    # Triton needs at least one dimension.
    assert all(len(v.dims) for v in (*config.input, *config.output))
    assert {k: v.string_value for k, v in config.parameters.items()} == said
    (group,) = config.instance_group
    assert (group.count, group.kind) == (1, group.KIND_AUTO)
    assert config.HasField("dynamic_batching") == (preferred is not None)
    if preferred:
        assert list(config.dynamic_batching.preferred_batch_size) == preferred
        assert config.dynamic_batching.max_queue_delay_microseconds == 2000


def test_the_accelerator_in_the_comment_is_valid_too(bundle: Bundle) -> None:
    text = triton_config("nuts", bundle.manifest.input)
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#   ")]
    config = parse(text + "\n".join(lines))
    (accelerator,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert accelerator.parameters["trt_engine_cache_enable"] == "1"


def test_a_model_is_replaced_and_its_neighbours_stay(
    bundle: Bundle, single: bytes, tmp_path: Path
) -> None:
    contract = bundle.manifest.input
    (tmp_path / "other").mkdir()
    path = write_single_file(bundle, None, tmp_path / "out.onnx")
    write_triton_repository(tmp_path, b"old", name="nuts", contract=contract)
    write_triton_repository(tmp_path, path, name="nuts", contract=contract, max_batch=3)
    assert (tmp_path / "nuts" / "1" / "model.onnx").read_bytes() == single
    assert "max_batch_size: 3" in (tmp_path / "nuts" / "config.pbtxt").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["nuts", "other", "out.onnx"]


def test_the_second_file_of_a_large_model_comes_along(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_file, "EXTERNAL_ABOVE", 4000)
    path = write_single_file(bundle, None, tmp_path / "out.onnx")
    folder = tmp_path / "repository"
    contract = bundle.manifest.input
    files = write_triton_repository(folder, path, name="nuts", contract=contract)
    assert [str(f.relative_to(folder / "nuts")) for f in files] == [
        "1/model.onnx",
        "1/out.onnx.data",
        "config.pbtxt",
    ]
    onnx.checker.check_model(str(files[0]))


@pytest.mark.parametrize("foreign", ["1/model.plan", "config.pbtxt"])
def test_a_foreign_model_is_not_overwritten(
    foreign: str, bundle: Bundle, single: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "nuts" / foreign
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(StorageError, match=r"was not written by anoco-edge.*another folder"):
        write_triton_repository(tmp_path, single, name="nuts", contract=bundle.manifest.input)
    assert file.read_text() == "mine" and [p.name for p in tmp_path.iterdir()] == ["nuts"]


def test_versions_that_others_added_are_kept(bundle: Bundle, single: bytes, tmp_path: Path) -> None:
    write_triton_repository(tmp_path, single, name="nuts", contract=bundle.manifest.input)
    (tmp_path / "nuts" / "2").mkdir()
    with pytest.raises(StorageError, match="also holds 2"):
        write_triton_repository(tmp_path, single, name="nuts", contract=bundle.manifest.input)


@pytest.mark.parametrize("name", ["", "../up", ".hidden", 'a"b', "a/b", "n\u00fcsse"])
def test_names_that_are_no_folder_are_refused(name: str, bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a model name"):
        write_triton_repository(tmp_path, b"", name=name, contract=bundle.manifest.input)


def test_bad_batches_and_places_are_one_clear_line(bundle: Bundle, tmp_path: Path) -> None:
    contract = bundle.manifest.input
    with pytest.raises(UsageError, match="largest batch is 0; it must be 1 or more"):
        write_triton_repository(tmp_path, b"", name="nuts", contract=contract, max_batch=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*Not a directory"):
        write_triton_repository(tmp_path / "file", b"", name="nuts", contract=contract)
    with pytest.raises(StorageError, match="No such file"):
        missing = tmp_path / "missing.onnx"
        write_triton_repository(tmp_path, missing, name="nuts", contract=contract)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
