"""The first minute: no bundle, no torch, a few pictures of good parts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import fails, names, network_camera, ok, refused, run_cli, tree
from tiny_bundle import write_good_pictures
from without_packages import Machine

from anoco_edge.bundle import Bundle, builtin, create_builtin_bundle, open_builtin
from anoco_edge.cli.builtin import EXPORT_PACKAGES, beyond_builtin, change_new_bundle
from anoco_edge.errors import StorageError, UsageError

MADE = (
    "{} was made from the built-in backbone efficientnet-lite0 (256x256, 3.6 MB); "
    "anoco-edge export gives others"
)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with four good parts and three to inspect, and no bundle."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_good_pictures(folder / "good", 4)
    write_good_pictures(folder / "parts", 3, seed=50)
    return folder


# --- enroll ---------------------------------------------------------------------------------------


def test_enroll_makes_the_bundle_that_is_not_there(empty: Path) -> None:
    ran = ok("enroll", "line.anoco", "good", "--product", "washer")
    choice, made, *_ = ran.err.splitlines()
    assert choice.startswith("auto compared 12 pairs") and made == MADE.format("line.anoco")
    bundle = Bundle.open("line.anoco")
    assert bundle.manifest.files == open_builtin().manifest.files
    assert bundle.product().name == "washer" and len(bundle.product().references) == 4
    rows = ok("infer", "parts", "--json").json["results"]
    assert {row["verdict"] for row in rows} == {"good"}
    assert names(".") == ["good", "line.anoco", "parts"]


def test_a_bundle_that_is_there_is_not_made_again(empty: Path) -> None:
    ok("enroll", "line.anoco", "good")
    created = Bundle.open("line.anoco").manifest.created
    ran = ok("enroll", "line.anoco", "parts")
    assert "was made from" not in ran.err
    assert Bundle.open("line.anoco").manifest.created == created
    assert Bundle.open("line.anoco").product().generation == 2


def test_a_dry_run_makes_nothing(empty: Path) -> None:
    before, packaged = tree(empty), tree(builtin.BUILTIN_FOLDER)
    ran = ok("enroll", "line.anoco", "good", "--dry-run")
    assert "product default would have 4 references" in ran.out
    assert "line.anoco would be made from the built-in backbone efficientnet-lite0" in ran.err
    assert "nothing was changed" in ran.err
    assert tree(empty) == before and tree(builtin.BUILTIN_FOLDER) == packaged


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("line", "the name of a bundle ends in .anoco"),
        ("gone/line.anoco", "there is no folder gone either"),
        ("file.anoco", "it is a file, and a bundle is a folder"),
    ],
)
def test_a_mistyped_name_is_not_made(empty: Path, path: str, hint: str) -> None:
    Path("file.anoco").touch()
    line = refused(4, "enroll", path, "good")
    assert line == f"anoco-edge: there is no bundle at {path}; {hint}"


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (2, ("good", "--product", "a b")),
        (1, ("good/good0.png", "broken.png")),
        (2, ("good", "--roi", "900,900,950,950")),
        (2, ("good", "--engine", "none-such")),
    ],
)
def test_references_that_fail_leave_no_bundle(
    empty: Path, code: int, options: tuple[str, ...]
) -> None:
    Path("broken.png").write_bytes(b"not a picture")
    refused(code, "enroll", "line.anoco", *options)
    assert names(".") == ["broken.png", "good", "parts"]


def test_a_cost_is_accepted_before_anything_is_made(empty: Path) -> None:
    assert "accept it with --yes" in refused(2, "enroll", "line.anoco", "good", "--tta", "paper")


def test_another_process_may_make_the_bundle_first(empty: Path) -> None:
    path = Path("line.anoco")
    with pytest.raises(StorageError, match=r"another process made line.anoco meanwhile; .*again$"):
        change_new_bundle(path, lambda _: create_builtin_bundle(path))
    assert Bundle.open(path).products() == []
    other = Path("other.anoco")

    def refuse(_: Bundle) -> None:
        raise UsageError("not these pictures")

    with pytest.raises(UsageError, match="not these pictures"):
        change_new_bundle(other, refuse)
    assert not other.exists()


def test_a_damaged_installation_is_one_line(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "BUILTIN_FOLDER", tmp_path / "lost")
    for command in (
        ("enroll", "line.anoco", "good"),
        ("infer", "good", "--teach", 2),
        ("demo", "--out", "demo-out"),
    ):
        line = fails(4, *command)
        assert line.startswith("anoco-edge: the built-in backbone of this installation is damaged")
    assert not Path("line.anoco").exists()


# --- infer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bundle", ["line.anoco", "named.anoco"])
def test_frames_teach_a_bundle_that_is_not_there(empty: Path, bundle: str) -> None:
    named = [] if bundle == "line.anoco" else [bundle]
    ran = ok("infer", *named, "good", "parts", "--teach", 4, "--json")
    assert MADE.format(bundle) in ran.err.splitlines()
    assert "taught 4 references: good0.png, good1.png, good2.png, good3.png" in ran.err
    assert [row["verdict"] for row in ran.json["results"]] == ["good"] * 3
    assert Bundle.open(bundle).product().references[0].name == "good0.png"
    assert names(".") == sorted(["good", "parts", bundle])


def test_a_camera_teaches_a_bundle_that_is_not_there(empty: Path) -> None:
    with network_camera(60, pause=0.02) as address:
        options = ("--teach", 2, "--teach-every", 0, "--limit", 3, "--json")
        ran = ok("infer", "--camera", address, *options)
    assert MADE.format("line.anoco") in ran.err.splitlines()
    assert len(ran.out.splitlines()) >= 1
    assert len(Bundle.open("line.anoco").product().references) == 2


@pytest.mark.parametrize("named", [(), ("named.anoco",)])
def test_nothing_is_left_where_no_frame_comes(empty: Path, named: tuple[str, ...]) -> None:
    assert "99" in refused(3, "infer", *named, "--camera", "99", "--teach", 4)
    assert "only 4 of 9 frames" in refused(1, "infer", *named, "good", "--teach", 9)
    assert names(".") == ["good", "parts"]


def test_frames_are_not_taught_to_a_mistyped_name(empty: Path) -> None:
    line = refused(4, "infer", "gone/line.anoco", "good", "--teach", 2)
    assert line.endswith("there is no bundle at gone/line.anoco; there is no folder gone either")


def test_one_line_says_what_to_do_where_there_is_no_bundle(empty: Path) -> None:
    none = "anoco-edge: no bundle was named and there is none in this directory; "
    enroll = "run: anoco-edge enroll line.anoco GOOD_PICTURES/"
    teach = "put a good part in view and run: anoco-edge infer --camera 0 --teach 4"
    assert refused(2, "infer", "--camera", "0") == f"{none}{teach}, or {enroll}"
    assert refused(2, "infer", "parts") == none + enroll
    missing = refused(4, "infer", "line.anoco", "parts")
    assert missing.endswith("make one with: anoco-edge enroll line.anoco PICTURES")


# --- export ---------------------------------------------------------------------------------------


@pytest.fixture
def no_torch(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "torch", None)
    return empty


def test_export_without_torch_takes_the_built_in_backbone(no_torch: Path) -> None:
    ran = ok("export", "--backbone", "efficientnet-lite0")
    assert ran.err.splitlines()[0] == (
        "torch is not installed, so efficientnet-lite0.anoco was made from the built-in backbone "
        "efficientnet-lite0 (256x256, 3.6 MB); pip install 'anoco-edge[export]' exports others"
    )
    assert "cut after blocks.2+blocks.4 (5 of 7 layers), 256x256, 32 x 32 patches" in ran.out
    bundle = Bundle.open("efficientnet-lite0.anoco")
    assert bundle.manifest.files == open_builtin().manifest.files


def test_what_does_not_change_the_graph_needs_no_torch(no_torch: Path) -> None:
    command = ("export", "--backbone", "efficientnet-lite0", "--out", "my.anoco", "--size", "256")
    teach = ("--refs", "good", "--shots", 2, "--seed", 1, "--product", "nut", "--tiles", "2x1")
    ran = ok(*command, *teach, "--json")
    assert ran.json["layers"] == [5, 7] and ran.json["plans"] == [] and ran.json["terms"] == ""
    assert ran.json["bundle"] == "my.anoco" and ran.json["parity"]["passed"]
    assert len(ran.json["taught"]["added"]) == 2
    assert Bundle.open("my.anoco").product("nut").tiles is not None
    exists = "my.anoco exists already; choose another place, or pass --overwrite"
    assert refused(2, *command).endswith(exists)
    ok(*command, "--overwrite", "--engine", "openvino")
    assert Bundle.open("my.anoco").products() == []


@pytest.mark.parametrize(
    ("options", "beyond"),
    [
        ((), "dinov3-l"),
        (("--backbone", "wrn50"), "wrn50"),
        (("--size", "384"), "--size"),
        (("--layer", 3), "--layers"),
        (("--layers", "3,5"), "--layers"),
        (("--tap-norm", "none"), "--tap-norm"),
        (("--weights", "random:0"), "--weights"),
        (("--precision", "fp16"), "--precision"),
        (("--precision", "int8", "--calib", "good"), "--precision"),
        (("--engine", "tensorrt-rtx", "--target", "sm86"), "--target"),
        (("--fit", "letterbox"), "--fit"),
        (("--refs", "good", "--single-file", "one.onnx"), "--single-file"),
        (("--refs", "good", "--triton", "models"), "--triton"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_any_other_option_names_the_extra(
    no_torch: Path, options: tuple[object, ...], beyond: str
) -> None:
    backbone = () if beyond in ("dinov3-l", "wrn50") else ("--backbone", "efficientnet-lite0")
    assert refused(3, "export", *backbone, *options) == (
        f"anoco-edge: torch is needed to export with {beyond} and is not installed; install it "
        "with: pip install 'anoco-edge[export]'; efficientnet-lite0 with default options is "
        "built in"
    )


def test_with_torch_the_backbone_is_exported(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def export(backbone: str, path: Path, **options: object) -> None:
        asked.append((backbone, path.name, options["overwrite"]))
        raise UsageError("it was exported")

    monkeypatch.setattr("anoco_edge.cli.builtin.export_bundle", export)
    assert "it was exported" in refused(2, "export", "--backbone", "efficientnet-lite0")
    assert asked == [("efficientnet-lite0", "efficientnet-lite0.anoco", False)]


@pytest.mark.parametrize("package", EXPORT_PACKAGES)
def test_every_package_of_an_export_counts(
    empty: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    ran = run_cli("export", "--backbone", "efficientnet-lite0", "--json")
    assert ran.code == 0 and ran.err.startswith(f"{package} is not installed")


def test_backbones_says_which_of_them_can_be_used(no_torch: Path) -> None:
    ran = ok("backbones")
    assert "dinov3-l" in ran.out
    assert ran.err.startswith("torch is not installed: only efficientnet-lite0 can be used, with")
    assert ran.err.endswith("pip install 'anoco-edge[export]' exports them all\n")
    assert not ok("backbones", "--json").err


def test_backbones_says_nothing_more_where_all_can_be_exported() -> None:
    assert not ok("backbones").err


def test_what_lies_beyond_the_built_in_backbone() -> None:
    assert not beyond_builtin("efficientnet-lite0", {"size": (256, 256), "fit": "stretch"})
    assert beyond_builtin("efficientnet-lite0", {"size": (256, 128)}) == "--size"


# --- a machine with the extra `cpu` and nothing else ----------------------------------------------


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    write_good_pictures(machine.folder / "good", 4)
    write_good_pictures(machine.folder / "parts", 3, seed=50)
    return machine


def test_a_first_verdict_needs_the_extra_cpu_only(machine: Machine) -> None:
    assert MADE.format("line.anoco") in machine.ok("enroll", "line.anoco", "good").err
    inspected = machine.ok("infer", "line.anoco", "parts", "--json").json["results"]
    assert [row["verdict"] for row in inspected] == ["good"] * 3
    made = machine.ok("export", "--backbone", "efficientnet-lite0", "--out", "second.anoco")
    assert "torch is not installed, so second.anoco was made from the built-in" in made.err
    other = machine.run("export", "--backbone", "efficientnet-lite0", "--precision", "fp16")
    assert other.code == 3 and "pip install 'anoco-edge[export]'" in other.complaint


def test_the_demo_needs_the_extra_cpu_only(machine: Machine) -> None:
    few = (
        "from anoco_edge.cli.commands import demo\ndemo.GOOD_PARTS = demo.DEFECTIVE_PARTS = 1\n"
        "from anoco_edge.demo import render\nrender.MATERIALS = render.MATERIALS[:1]"
    )
    ran = machine.ok("demo", setup=few)
    assert "anoco-edge enroll my.anoco GOOD_PICTURES/" in ran.out
    assert "anoco-edge infer my.anoco --camera 0 --teach 4" in ran.out
    bundle = Bundle.open(machine.folder / "demo-out/demo.anoco")
    assert bundle.manifest.files == open_builtin().manifest.files
    other = machine.run("demo", "--size", "128", "--out", "other", setup=few)
    assert other.code == 3 and "pip install 'anoco-edge[export]'" in other.complaint
    assert not (machine.folder / "other").exists()


def test_the_packages_of_that_machine_are_really_hidden(machine: Machine) -> None:
    for name in ("torch", "onnx", "cv2"):
        assert f"No module named '{name}'" in machine.run(setup=f"import {name}").err
    machine.ok("--version", setup="import onnxruntime")
