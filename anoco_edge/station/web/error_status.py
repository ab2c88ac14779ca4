"""Which status of HTTP an error of the package stands for."""

from __future__ import annotations

from anoco_edge.errors import (
    AnocoError,
    BundleError,
    ConflictError,
    EnvironmentMissingError,
    PictureError,
    SignatureError,
    StorageError,
    UsageError,
)
from anoco_edge.station.jobs.job_models import TooManyJobsError
from anoco_edge.station.parts.captures import UnknownCaptureError
from anoco_edge.station.people.roles import UnknownNameError

_STATUS: tuple[tuple[type[AnocoError], int], ...] = (
    (UnknownNameError, 404),
    (UnknownCaptureError, 404),
    (TooManyJobsError, 429),
    (ConflictError, 412),
    (UsageError, 422),
    (PictureError, 422),
    (SignatureError, 403),
    (BundleError, 422),
    (StorageError, 507),
    (EnvironmentMissingError, 503),
)


def status_of(error: AnocoError) -> int:
    """Return the status; 500 for what is nobody's fault who asked.

    >>> status_of(ConflictError("another generation")), status_of(AnocoError("broken"))
    (412, 500)
    """
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
