"""The interval of a camera's clock always holds the exposure, whatever the clocks do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anoco_edge.errors import PictureError
from anoco_edge.line.cameras.aravis_device import AravisDevice
from anoco_edge.line.cameras.clock import LATE, CameraClock, Exposure
from anoco_edge.line.cameras.pixel_formats import to_rgb
from anoco_edge.line.core.settings import MS

RED = np.zeros((8, 8), np.uint8)
RED[::2, ::2] = 200


@settings(max_examples=100, deadline=None)
@given(
    offset=st.integers(-(10**15), 10**15),
    drift=st.floats(-9e-5, 9e-5),
    parts=st.lists(
        st.tuples(
            st.integers(1, 60_000),  # ms until the request
            st.integers(0, 40),  # ms until the exposure
            st.integers(1, 120),  # ms until the frame has arrived
            st.sampled_from(["frame", "lost", "latch"]),
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_every_exposure_lies_in_its_interval(
    offset: int, drift: float, parts: list[tuple[int, int, int, str]]
) -> None:
    now = 5_000_000 * MS
    clock = CameraClock(now)

    def stamp(time: int) -> int:
        return 10**16 + round(time * (1 + drift)) - offset

    for pause, exposure, transfer, kind in parts:
        now += pause * MS
        if kind == "latch":
            clock.latch(now, stamp(now + MS // 2), now + MS)
            continue
        clock.request(now)
        exposed = now + exposure * MS
        now = exposed + transfer * MS
        if kind == "frame":
            found = clock.frame(stamp(exposed), now)
            assert found is not None
            assert found.earliest <= exposed <= found.latest


def test_requests_and_arrivals_narrow_the_interval() -> None:
    clock = CameraClock(0)
    widths = []
    for number, (delay, transfer) in enumerate([(30, 50), (2, 60), (20, 3), (10, 20)]):
        asked = (1 + number) * 100 * MS
        clock.request(asked)
        exposed = asked + delay * MS
        found = clock.frame(7 * MS + exposed, exposed + transfer * MS)
        assert found is not None
        widths.append(found.uncertainty // MS)
    assert widths == [80, 52, 5, 5]


def test_a_frame_of_the_request_before_is_not_moved_behind_the_last_one() -> None:
    clock = CameraClock(0)
    for asked in (100 * MS, 200 * MS):
        clock.request(asked)
        assert clock.frame(asked + MS, asked + 2 * MS) is not None
    clock.request(300 * MS)
    clock.request(400 * MS)
    found = clock.frame(301 * MS, 402 * MS)
    assert found is not None and found.latest < 400 * MS


def test_a_frame_that_never_came_does_not_count_for_ever() -> None:
    clock = CameraClock(0)
    clock.request(MS)
    clock.request(MS + LATE)
    assert clock.frame(0, 2 * MS + LATE) == Exposure(MS + LATE, 2 * MS + LATE)


def test_a_clock_that_is_stepped_is_noticed() -> None:
    clock = CameraClock(0)
    for asked, step in ((100 * MS, 0), (200 * MS, -50)):
        clock.request(asked)
        found = clock.frame(asked + (1 + step) * MS, asked + 2 * MS)
    assert found is None


class Registers(AravisDevice):
    """A GigE Vision device whose clock can be read, which the fake camera's cannot."""

    def __init__(self, **registers: int) -> None:
        self._is_gige, self._ticks, self._device = True, 0, None
        self.registers = {int(name[1:], 16): value for name, value in registers.items()}

    def _call(self, name: str, *arguments: Any) -> None:
        if name == "device_read_register":
            arguments[2]._obj.value = self.registers.get(arguments[1], 0)
        else:
            assert (name, arguments[1:]) == ("device_write_register", (0x944, 2))


def test_the_clock_of_a_camera_is_read_between_two_times_of_ours() -> None:
    # 125 MHz; 2**32 + 5 ticks of 8 ns
    found = Registers(r940=125_000_000, r948=1, r94c=5).latch()
    assert found is not None and found[1] == (2**32 + 5) * 8 and found[0] <= found[2]
    assert Registers(r940=125_000_000).latch() is None, "it has no clock"
    clock = CameraClock(0)
    clock.latch(50 * MS, 7 * MS, 52 * MS)
    assert clock.frame(17 * MS, 100 * MS) == Exposure(59_995_200, 62_004_800)


def test_pixel_formats_become_rgb() -> None:
    rgb = np.arange(48, dtype=np.uint8)
    assert (to_rgb(rgb, 4, 4, 0x02180014).reshape(-1) == rgb).all()
    assert to_rgb(rgb, 4, 4, 0x02180015)[0, 0].tolist() == [2, 1, 0]
    wide = np.full(4, 0x3FF, "<u2").view(np.uint8)
    assert to_rgb(wide, 2, 2, 0x01100003).max() == 255
    for code, turned in ((0x01080009, RED), (0x0108000B, np.roll(RED, (1, 1), (0, 1)))):
        red = to_rgb(turned.reshape(-1), 8, 8, code)[2:6, 2:6]
        assert red[..., 0].min() > 150 and red[..., 1:].max() == 0
    for code, moved in ((0x01080008, (0, 1)), (0x0108000A, (1, 0))):
        red = to_rgb(np.roll(RED, moved, (0, 1)).reshape(-1), 8, 8, code)[2:6, 2:6]
        assert red[..., 0].min() > 150 and red[..., 1:].max() == 0
    for data, code in ((rgb, 0x010C0006), (rgb[:10], 0x01080001)):
        with pytest.raises(PictureError):
            to_rgb(data, 4, 4, code)
