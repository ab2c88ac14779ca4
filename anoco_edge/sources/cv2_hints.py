"""What to do about an OpenCV that is missing or does not load, which depends on the machine."""

from __future__ import annotations

from anoco_edge.machine import is_jetson


def cv2_hint(what: str, *, jetson: bool) -> str:
    """Return what to do about an OpenCV that is missing or does not load; empty if nothing special.

    OpenCV from PyPI has no GStreamer, so nobody is sent to it on a Jetson: it would hide the one
    that reads CSI cameras.

    >>> cv2_hint("cv2 is installed but does not load: numpy.core.multiarray", jetson=False)
    "it was built for NumPy 1: pip install 'numpy<2'"
    """
    if "numpy" in what:
        keep = ", and keep JetPack's cv2: PyPI's has no GStreamer" if jetson else ""
        return f"it was built for NumPy 1: pip install 'numpy<2'{keep}"
    if jetson:
        return (
            "use the system's own: apt-get install python3-opencv, and make the environment with"
            " python3 -m venv --system-site-packages; PyPI's has no GStreamer"
        )
    if "does not load" in what:
        return "opencv-python needs a desktop's libraries; opencv-python-headless does not"
    return ""


def missing_cv2_hint() -> str:
    """Return what to do on this machine where there is no OpenCV; empty if nothing special.

    >>> missing_cv2_hint() == cv2_hint("", jetson=is_jetson())
    True
    """
    return cv2_hint("", jetson=is_jetson())
