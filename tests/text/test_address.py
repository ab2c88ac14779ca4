"""Passwords in the addresses of common cameras are never shown."""

from __future__ import annotations

import pytest

from anoco_edge.errors import AnocoError, SourceError
from anoco_edge.sinks.service_manager import ServiceManager
from anoco_edge.sources import open_source
from anoco_edge.text.address import mask_address

SECRET = "Zq7Kx"  # in every address below, and never in the output

ADDRESSES = {
    "plain": f"rtsp://admin:{SECRET}@192.168.1.64:554/Streaming/Channels/101",
    "slash": f"rtsp://admin:pa/{SECRET}@192.168.1.64/1",
    "slash and port": f"rtsp://admin:{SECRET}/12@cam:554/1",
    "digits and slash": f"rtsp://admin:123/{SECRET}@cam.local:554/1",
    "at": f"rtsp://admin:p@{SECRET}@cam/1",
    "at and slash": f"rtsp://admin:p@x/{SECRET}@cam/1",
    "colon": f"rtsp://admin:p:{SECRET}@cam/1",
    "question mark": f"rtsp://admin:p?{SECRET}@cam/1?channel=1",
    "hash": f"rtsp://admin:p#{SECRET}@cam/1",
    "percent": f"rtsp://admin%3A{SECRET}%40@cam/1",
    "no user": f"rtsp://:{SECRET}@cam/1",
    "upper case": f"RTSP://admin:{SECRET}@CAM/1",
    "hikvision": f"rtsp://admin:{SECRET}@10.0.0.2/h264/ch1/main/av_stream",
    "dahua": f"rtsp://10.0.0.2/cam/realmonitor?channel=1&subtype=0&authbasic={SECRET}",
    "xm": f"rtsp://10.0.0.2:554/user=admin_password={SECRET}_channel=1_stream=0.sdp?real_stream",
    "xm with &": f"rtsp://10.0.0.2:554/user=admin&password={SECRET}&channel=1&stream=0.sdp",
    "foscam": f"http://10.0.0.2:88/cgi-bin/CGIStream.cgi?cmd=GetMJStream&usr=op&pwd={SECRET}",
    "foscam old": f"http://10.0.0.2/videostream.cgi?user=op&PWD={SECRET}&resolution=32",
    "axis": f"http://root:{SECRET}@10.0.0.2/axis-cgi/mjpg/video.cgi?camera=1",
    "reolink": f"rtmp://10.0.0.2/bcs/channel0_main.bcs?channel=0&user=admin&password={SECRET}",
    "tp-link": f"rtsp://op:{SECRET}@10.0.0.2:554/stream1",
    "acti": f"http://10.0.0.2/cgi-bin/system?USER=op&PWD={SECRET}&GET_STREAM",
    "path": f"rtsp://10.0.0.2:554/0/admin:{SECRET}/main",
    "token": f"https://nvr/live.m3u8?access_token={SECRET}",
    "api key": f"https://nvr/live?api_key={SECRET}&quality=1",
    "passwd": f"http://cam/video?Passwd={SECRET}",
    "pass with slash": f"http://cam/video?pass=a/{SECRET}&x=1",
    "pass with hash": f"http://cam/video?pass=a#{SECRET}",
    "encoded field": f"http://cam/video?url=cam%3Fpassword%3D{SECRET}%26channel%3D1",
    "srt": f"srt://10.0.0.2:9000?mode=caller&passphrase={SECRET}",
    "udp": f"udp://op:{SECRET}@239.0.0.1:1234",
    "tcp": f"tcp://op:{SECRET}@10.0.0.2:1234",
    "file": f"file://op:{SECRET}@nas/clip.mp4",
    "rtmp option": f"rtmp://nvr/live pubUser=op pubPasswd={SECRET} live=1",
    "gstreamer": f"rtspsrc location=rtsp://cam/1 user-id=op user-pw={SECRET} ! decodebin ! appsink",
    "gstreamer quotes": f'rtspsrc location="rtsp://op:{SECRET}@cam/1" ! decodebin ! appsink',
    "gstreamer spaces": f'rtspsrc location=rtsp://cam/1 user-pw = "a {SECRET} b" ! appsink',
    "gstreamer typed": f"rtspsrc location=rtsp://cam/1 user-pw=(string){SECRET} ! appsink",
    "gstreamer escapes": f'souphttpsrc location=http://c/ user-pw="a\\" {SECRET}" ! appsink',
    "gstreamer proxy": f"rtspsrc location=rtsp://cam/1 proxy-id=p proxy-pw='{SECRET}' ! appsink",
    "header": f'souphttpsrc location=http://c/ extra-headers="x,Authorization=Basic {SECRET}xyz"',
}
HARMLESS = (
    "http://cam:8080/live@2",
    "http://cam:8080/stream?channel=1&subtype=0",
    "rtsp://op@cam/1",
    "rtsp://[fe80::1]:554/live",
    "v4l2src device=/dev/video0 ! video/x-raw,width=640 ! videoconvert ! appsink",
    "parts/a b.png",
    "/dev/video0",
    "camera:0#17",
)


@pytest.mark.parametrize("kind", ADDRESSES)
def test_no_password_is_left(kind: str) -> None:
    shown = mask_address(ADDRESSES[kind])
    assert SECRET not in shown and "***" in shown
    assert mask_address(shown) == shown


@pytest.mark.parametrize("text", HARMLESS)
def test_what_has_no_password_stays(text: str) -> None:
    assert mask_address(text) == text


def test_what_helps_to_find_the_camera_stays() -> None:
    assert mask_address("rtsp://op:p@ss:w@cam:554/1?a=b@c") == "rtsp://op:***@cam:554/1?a=b@c"
    assert mask_address(ADDRESSES["xm"]) == (
        "rtsp://10.0.0.2:554/user=admin_password=***_channel=1_stream=0.sdp?real_stream"
    )
    assert mask_address("http://cam/v?pwd=x#17") == "http://cam/v?pwd=***#17"


@pytest.mark.parametrize("kind", ADDRESSES)
def test_errors_hide_passwords_whoever_wrote_the_words(kind: str) -> None:
    error = SourceError(f"Cannot open '{ADDRESSES[kind]}' !", hint=f"try {ADDRESSES[kind]}")
    assert SECRET not in str(error) + error.what + error.hint + repr(error)


@pytest.mark.parametrize("kind", ["plain", "xm", "gstreamer", "gstreamer quotes", "foscam"])
def test_a_camera_that_does_not_open_hides_its_password(kind: str) -> None:
    address = ADDRESSES[kind].replace("10.0.0.2", "127.0.0.1").replace("192.168.1.64", "127.0.0.1")
    with pytest.raises(AnocoError) as caught:
        open_source([], camera=address, timeout=0.2)
    assert SECRET not in str(caught.value)


def test_the_service_manager_is_told_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(ServiceManager, "_send", lambda _, text: sent.append(text))
    ServiceManager("@x").ready(f"watching {ADDRESSES['plain']} for washer")
    ServiceManager("@x").stopping(f"{ADDRESSES['foscam']} stopped")
    assert SECRET not in "".join(sent) and len(sent) == 2
