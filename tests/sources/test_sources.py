"""Sources read real files, a real video and a real HTTP camera, in order and to a clear end."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import pytest
from command_line import PATIENCE, write_video
from PIL import Image

from anoco_edge.errors import (
    EnvironmentMissingError,
    PictureError,
    SourceError,
    UsageError,
)
from anoco_edge.images.frame import Frame
from anoco_edge.sources import SOURCES, cv2_hints, cv2_reader, open_source
from anoco_edge.sources.cameras import camera_devices, has_gstreamer
from anoco_edge.sources.files import natural_key

SIZE = (64, 48)


def picture(path: Path, colour: tuple[int, int, int] = (10, 20, 30)) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE, colour).save(path)
    return str(path)


def names(frames: list[Frame], folder: Path) -> list[str]:
    return [str(Path(frame.source).relative_to(folder)) for frame in frames]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("img10.png", "img9.JPG", "sub/2.png", "sub/10.png", ".hidden.png", ".git/x.png"):
        picture(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    (tmp_path / "sub" / "clip.avi").write_text("not a video either")
    return tmp_path


ORDER = ["img9.JPG", "img10.png", "sub/2.png", "sub/10.png"]


def test_a_folder_in_natural_order_without_hidden_files(folder: Path) -> None:
    with open_source([str(folder)]) as source:
        frames = list(source)
    assert names(frames, folder) == ORDER
    assert [frame.index for frame in frames] == [0, 1, 2, 3]
    assert (source.total, source.live, source.skipped) == (4, False, 0)
    assert frames[1].rgb is not None and frames[1].rgb[0, 0].tolist() == [10, 20, 30]
    assert frames[1].error is None and frames[1].decode_ms > 0
    assert 0 <= time.monotonic() - frames[1].captured < 60


def test_a_path_stays_as_it_was_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert [frame.source for frame in open_source(["sub", "./img10.png"])] == [
        "sub/2.png",
        "sub/10.png",
        "./img10.png",
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.png", ["img10.png"]),
        ("**/*.png", ["img10.png", "sub/2.png", "sub/10.png"]),
        ("s*", ["sub/2.png", "sub/10.png"]),
        ("img*", ["img9.JPG", "img10.png"]),
        ("[in]*", ["img9.JPG", "img10.png"]),
    ],
)
def test_globs(folder: Path, pattern: str, expected: list[str]) -> None:
    source = open_source([str(folder / pattern)])
    assert names(list(source), folder) == expected


def test_a_file_with_brackets_in_its_name_is_no_pattern(tmp_path: Path) -> None:
    path = picture(tmp_path / "part[1].png")
    assert [frame.source for frame in open_source([path])] == [path]


def test_folders_that_link_in_a_circle(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert len(list(open_source([str(tmp_path / "a")]))) == 1
    assert len(list(open_source([str(tmp_path / "b")]))) == 1


def test_a_bad_picture_does_not_end_the_run(folder: Path) -> None:
    (folder / "img9.JPG").write_text("a text")
    frames = list(open_source([str(folder)]))
    assert len(frames) == 4
    assert frames[0].rgb is None and isinstance(frames[0].error, PictureError)
    assert "img9.JPG" in str(frames[0].error)
    assert all(frame.error is None for frame in frames[1:])


def test_limit_and_going_on(folder: Path) -> None:
    with open_source([str(folder)], limit=3) as source:
        assert source.total == 3
        first = names(list(islice(source, 2)), folder)
        rest = names(list(source), folder)
    assert (first, rest) == (ORDER[:2], ORDER[2:3])


def test_nothing_comes_after_close(folder: Path) -> None:
    source = open_source([str(folder)])
    frames = iter(source)
    next(frames)
    source.close()
    source.close()
    assert list(frames) == []


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([], "nothing to read"),
        (["{}/gone.png"], "no file or folder .*gone.png"),
        (["{}/*.tiff"], r"no file fits .*\*.tiff"),
        (["{}/*.txt"], r"no picture or video fits .*\*.txt"),
        (["{}/empty"], "no pictures in .*empty; "),
        (["{}/texts"], r"no pictures in .*texts \(1 other files\)"),
        (["{}", "{}/gone"], "no file or folder .*gone"),
        (["/dev/null"], "is a device.*`camera='/dev/null'`"),
        (["{}", "rtsp://op:secret@cam/1"], r"rtsp://op:\*\*\*@cam/1 .*must stand alone"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, inputs: list[str], words: str) -> None:
    (folder / "empty").mkdir()
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").touch()
    with pytest.raises(UsageError, match=words) as caught:
        open_source([text.format(folder) for text in inputs])
    assert caught.value.exit_code == 2


def test_calls_that_make_no_sense(folder: Path) -> None:
    with pytest.raises(UsageError, match="at once"):
        open_source([str(folder)], camera=0)
    with pytest.raises(UsageError, match="limit"):
        open_source([str(folder)], limit=0)
    with pytest.raises(UsageError, match="timeout"):
        open_source([], camera=0, timeout=0)
    with pytest.raises(UsageError, match="not a camera"):
        open_source([], camera="front door")


def test_natural_order_breaks_ties_the_same_way_every_time() -> None:
    paths = ["a01.png", "A1.png", "a1.png", "a/b.png", "1.png", "é2", "é10", "x"]
    backwards = paths[::-1]
    assert sorted(paths, key=natural_key) == sorted(backwards, key=natural_key)


# --- videos ---------------------------------------------------------------------------------------


def shade(number: int) -> tuple[int, int, int]:
    """Return a colour that tells frames apart after JPEG, and red from blue."""
    return (60 + 10 * (number % 10), 60 + 10 * (number // 10), 10)


def video(path: Path, count: int) -> str:
    shape = (SIZE[1], SIZE[0], 3)
    return write_video(path, [np.full(shape, shade(n), np.uint8) for n in range(count)])


def number_of(frame: Frame) -> int:
    assert frame.rgb is not None and frame.rgb.shape == (SIZE[1], SIZE[0], 3)
    assert frame.rgb.flags.c_contiguous
    red, green, blue = frame.rgb.mean(axis=(0, 1))
    assert blue < 20, "red and blue are swapped"
    return int(round((red - 60) / 10) + 10 * round((green - 60) / 10))


@pytest.mark.parametrize("name", ["clip.avi", "12:30.mkv"])
def test_a_video_gives_every_frame_in_rgb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    video(tmp_path / name, 30)
    monkeypatch.chdir(tmp_path)
    with open_source([name]) as source:
        assert (source.total, source.live) == (30, False)
        frames = list(source)
    assert [number_of(frame) for frame in frames] == list(range(30))
    assert [frame.source for frame in frames] == [f"{name}#{n}" for n in range(30)]


def test_videos_and_pictures_are_chained(tmp_path: Path) -> None:
    first, clip = picture(tmp_path / "a.png"), video(tmp_path / "clip.avi", 5)
    with open_source([first, clip, first]) as source:
        assert source.total == 7
        frames = list(source)
    assert [frame.index for frame in frames] == list(range(7))
    assert [frames[0].source, frames[5].source, frames[6].source] == [first, f"{clip}#4", first]


def test_a_cut_video_says_so_after_everything_else(tmp_path: Path) -> None:
    clip, last = Path(video(tmp_path / "cut.avi", 60)), picture(tmp_path / "last.png")
    data = clip.read_bytes()
    clip.write_bytes(data[: len(data) // 2])
    seen: list[str] = []
    with (
        open_source([str(clip), last]) as source,
        pytest.raises(SourceError, match=r"cut.avi ended after \d+ of 60 frames"),
    ):
        seen.extend(frame.source for frame in source)
    assert 10 < len(seen) < 40 and seen[-1] == last


def test_a_limit_within_a_cut_video_is_no_error(tmp_path: Path) -> None:
    clip = Path(video(tmp_path / "cut.avi", 60))
    clip.write_bytes(clip.read_bytes()[: clip.stat().st_size // 2])
    assert len(list(open_source([str(clip)], limit=5))) == 5


def test_what_is_no_video(tmp_path: Path) -> None:
    (tmp_path / "fake.mp4").write_text("moving words")
    with pytest.raises(PictureError, match=r"fake.mp4 is not a video") as caught:
        open_source([str(tmp_path / "fake.mp4")])
    assert caught.value.exit_code == 1


def test_a_video_too_small_to_inspect_is_an_error_per_frame(tmp_path: Path) -> None:
    tiny = write_video(tmp_path / "tiny.avi", [np.zeros((8, 8, 3), np.uint8)])
    (frame,) = open_source([tiny])
    assert frame.rgb is None and "8x8" in str(frame.error)


# --- streams --------------------------------------------------------------------------------------


class Camera:
    """An HTTP MJPEG camera that sends `count` frames, `pause` apart, and then stops."""

    def __init__(self, count: int, pause: float = 0.0, *, silent: bool = False) -> None:
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
                self.end_headers()
                for number in range(count):
                    if outer.release.is_set():
                        return
                    rgb = np.full((SIZE[1], SIZE[0], 3), shade(number)[::-1], np.uint8)
                    body = cv2.imencode(".jpg", rgb)[1].tobytes()
                    head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}"
                    try:
                        self.wfile.write(head.encode() + b"\r\n\r\n" + body + b"\r\n")
                    except OSError:  # the reader disconnected
                        return
                    outer.release.wait(pause)
                if silent:
                    outer.release.wait(30)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/live.mjpg"


@contextmanager
def camera(count: int, pause: float = 0.0, *, silent: bool = False) -> Iterator[Camera]:
    it = Camera(count, pause, silent=silent)
    thread = threading.Thread(target=it.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield it
    finally:
        it.release.set()
        it.server.shutdown()
        it.server.server_close()
        thread.join()


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader of")]


def test_a_slow_consumer_gets_the_newest_and_the_rest_is_counted() -> None:
    frames: list[Frame] = []
    with camera(80, 0.005) as served, open_source([served.url]) as source:
        assert source.live and source.total is None and source.name == served.url
        with pytest.raises(SourceError, match="stopped after 80 frames"):
            for frame in source:
                frames.append(frame)
                time.sleep(0.06)
    assert source.skipped > 20 and len(frames) + source.skipped == 80
    assert frames[-1].index == 79, "the last frame that came is delivered before the error"
    assert [number_of(frame) for frame in frames] == [frame.index for frame in frames]
    assert [frame.source for frame in frames] == [f"{served.url}#{f.index}" for f in frames]
    assert all(frame.decode_ms > 0 for frame in frames)
    captured = [frame.captured for frame in frames]
    assert captured == sorted(captured)
    assert readers() == []


def test_what_waited_is_replaced_by_what_is_newest() -> None:
    with camera(60, silent=True) as served, open_source([served.url], timeout=2) as source:
        deadline = time.monotonic() + PATIENCE
        while source.skipped < 59 and time.monotonic() < deadline:
            time.sleep(0.01)
        newest = next(iter(source))
        assert (newest.index, number_of(newest)) == (59, 59)
        assert source.skipped == 59


def test_a_stream_that_dies_midway() -> None:
    taken = 0
    with camera(7, 0.03) as served, open_source([served.url]) as source:
        with pytest.raises(SourceError, match="stopped after 7 frames: the connection") as caught:
            for _ in source:
                taken += 1
        assert list(source) == []
    assert taken + source.skipped == 7 and caught.value.exit_code == 1


def test_a_stream_that_falls_silent() -> None:
    with camera(7, silent=True) as served, open_source([served.url], timeout=0.5) as source:
        began = time.monotonic()
        with pytest.raises(SourceError, match="stopped after 7 frames"):
            list(source)
        assert 0.3 < time.monotonic() - began < 3


def test_a_limit_ends_a_stream_without_error() -> None:
    with camera(1000, 0.005) as served, open_source([served.url], limit=4) as source:
        assert source.total == 4
        assert len(list(source)) == 4
    assert readers() == []


def test_the_first_frames_teach_and_the_rest_goes_on() -> None:
    with camera(1000, 0.005) as served, open_source([served.url], limit=5) as source:
        first = list(islice(source, 2))
        rest = list(source)
    numbers = [frame.index for frame in first + rest]
    assert len(first) == 2 and len(rest) == 3 and numbers == sorted(set(numbers))


def test_close_from_another_thread_ends_the_loop() -> None:
    with camera(3, silent=True) as served:
        source = open_source([served.url], timeout=30)
        threading.Timer(0.3, source.close).start()
        began = time.monotonic()
        frames = list(source)  # would wait for 30 seconds otherwise
        assert time.monotonic() - began < 5 and len(frames) <= 3


def test_an_interrupt_in_the_consumer_stops_the_reader() -> None:
    with camera(1000, 0.005) as served:
        with pytest.raises(KeyboardInterrupt), open_source([served.url]) as source:
            for _ in source:
                raise KeyboardInterrupt
        assert readers() == []
        counted = source.skipped
        time.sleep(0.05)
        assert source.skipped == counted


def test_an_address_where_nothing_listens() -> None:
    with camera(0) as served:
        pass  # its port is free again
    began = time.monotonic()
    with pytest.raises(EnvironmentMissingError, match="no stream at http") as caught:
        open_source([served.url], timeout=2)
    assert time.monotonic() - began < 5 and caught.value.exit_code == 3


def test_an_address_that_listens_and_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        with pytest.raises(EnvironmentMissingError, match="no stream at rtsp"):
            open_source([f"rtsp://127.0.0.1:{mute.getsockname()[1]}/1"], timeout=0.5)
        assert time.monotonic() - began < 5


def test_passwords_stay_out_of_names() -> None:
    with pytest.raises(EnvironmentMissingError) as caught:
        open_source(["http://op:secret@127.0.0.1:9/x"], timeout=1)
    assert "secret" not in str(caught.value)


# --- cameras --------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [99, "99", "/dev/video99"])
def test_no_such_camera(which: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentMissingError, match=rf"no camera {which}; there ") as caught:
        open_source([], camera=which)
    assert caught.value.exit_code == 3
    monkeypatch.setattr(
        "anoco_edge.sources.cameras.camera_devices", lambda: ["/dev/video0", "/dev/video2"]
    )
    with pytest.raises(EnvironmentMissingError, match="/dev/video0, /dev/video2"):
        open_source([], camera=which)


@pytest.mark.parametrize("camera", ["0", "/dev/video0", "videotestsrc ! appsink"])
def test_nobody_on_a_jetson_is_sent_to_the_opencv_of_pypi(
    camera: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no GStreamer, and hides the one that has."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    for jetson, wanted in ((True, "apt-get install python3-opencv"), (False, "anoco-edge[camera]")):
        monkeypatch.setattr(cv2_hints, "is_jetson", lambda jetson=jetson: jetson)
        monkeypatch.setattr(cv2_reader, "is_jetson", lambda jetson=jetson: jetson)
        with pytest.raises(EnvironmentMissingError, match="is not installed") as caught:
            open_source([], camera=camera)
        assert wanted in caught.value.hint
        assert ("pip install" in caught.value.hint) == (not jetson)
        (spec,) = (spec for spec in SOURCES if spec.name == "gstreamer")
        assert spec.missing_error("cv2").hint == caught.value.hint


def test_a_device_that_is_no_camera() -> None:
    with pytest.raises(EnvironmentMissingError, match="/dev/null does not open"):
        open_source([], camera="/dev/null")


BUILT_FOR_NUMPY_1 = """
import sys
sys.stderr.write("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.6")
raise ImportError("numpy.core.multiarray failed to import")
"""


@pytest.mark.parametrize(
    ("cv2", "jetson", "wanted"),
    [
        (BUILT_FOR_NUMPY_1, True, "pip install 'numpy<2', and keep JetPack's cv2"),
        (BUILT_FOR_NUMPY_1, False, "pip install 'numpy<2'"),
        ("raise ImportError('libGL.so.1: cannot open')", False, "opencv-python-headless does not"),
        ("raise ImportError('libGL.so.1: cannot open')", True, "apt-get install python3-opencv"),
        (None, True, "apt-get install python3-opencv"),
        (None, False, "pip install 'anoco-edge[camera]'"),
    ],
)
def test_an_opencv_that_does_not_load_says_what_helps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cv2: str | None,
    jetson: bool,
    wanted: str,
) -> None:
    monkeypatch.setattr(cv2_reader, "is_jetson", lambda: jetson)
    if cv2 is None:
        monkeypatch.setitem(sys.modules, "cv2", None)
    else:
        (tmp_path / "cv2.py").write_text(cv2)
        monkeypatch.delitem(sys.modules, "cv2", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentMissingError) as caught:
        cv2_reader.load_cv2()
    assert wanted in caught.value.hint
    # PyPI's OpenCV has no GStreamer: on a Jetson nobody may be sent to it.
    assert not (jetson and ("headless" in caught.value.hint or "[camera]" in caught.value.hint))
    assert capsys.readouterr().err == "", "the error is the one line"


def test_a_pipeline_needs_gstreamer() -> None:
    words = "does not start" if has_gstreamer() else "no GStreamer.*PyPI.*JetPack"
    with pytest.raises(EnvironmentMissingError, match=words):
        open_source([], camera="nosuchsrc ! appsink")


def test_an_address_may_be_given_as_the_camera() -> None:
    with camera(20, 0.01) as served, open_source([], camera=served.url, limit=1) as source:
        assert len(list(source)) == 1


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )


def test_opencv_and_ffmpeg_say_nothing_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "fake.mp4").write_text("moving words")
    attempts = f"""
from anoco_edge.errors import AnocoError
from anoco_edge.sources import open_source
for inputs, camera in ([], 99), ([], "/dev/video98"), (["http://127.0.0.1:9/x"], None), \\
        ([{str(tmp_path / "fake.mp4")!r}], None):
    try:
        open_source(inputs, camera=camera, timeout=2)
    except AnocoError as exc:
        print(type(exc).__name__)
"""
    for before in ("", "import cv2"):
        done = run(before + attempts)
        assert done.stdout.split() == ["EnvironmentMissingError"] * 3 + ["PictureError"]
        assert done.stderr == ""


def test_pictures_need_neither_and_the_rest_says_how_to_get_them(tmp_path: Path) -> None:
    done = run(f"""
import sys
sys.modules["cv2"] = sys.modules["av"] = None
from anoco_edge.errors import EnvironmentMissingError
from anoco_edge.sources import open_source
print(len(list(open_source([{picture(tmp_path / "a.png")!r}]))))
for inputs, camera in ([], 0), ([{video(tmp_path / "a.avi", 2)!r}], None):
    try:
        open_source(inputs, camera=camera)
    except EnvironmentMissingError as exc:
        print(exc)
""")
    assert done.stdout.splitlines() == [
        "1",
        "cv2 is needed to read cameras and is not installed; "
        "install it with: pip install 'anoco-edge[camera]'",
        "av is needed to read videos and streams and is not installed; "
        "install it with: pip install 'anoco-edge[video]'",
    ], done.stderr


def test_importing_sources_loads_neither_opencv_nor_ffmpeg() -> None:
    done = run(
        "import sys, anoco_edge.sources.files, anoco_edge.images.decode\n"
        "print({'av', 'cv2'} & set(sys.modules))"
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_devices_are_listed_in_the_order_of_their_numbers() -> None:
    numbers = [int(device.removeprefix("/dev/video")) for device in camera_devices()]
    assert numbers == sorted(numbers)
