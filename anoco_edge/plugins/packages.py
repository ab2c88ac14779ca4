"""Imports packages that an extra installs, late and with an error that says what to do."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anoco_edge.errors import EnvironmentMissingError, missing


def import_package(name: str, extra: str, why: str, *, hint: str = "") -> Any:
    """Import a package, or a module of one, on first use.

    `extra` is the extra of anoco-edge that installs it, and `why` says what it is needed for.
    `hint` says what to do where the package is installed and does not load.

    >>> import_package("json", "cpu", "to read a file").__name__
    'json'
    >>> import_package("no_such_package", "cpu", "to read a file")
    Traceback (most recent call last):
    anoco_edge.errors.EnvironmentMissingError: no_such_package is needed to read a file and ...
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name == package:
            raise missing(package, extra, why) from None
        raise EnvironmentMissingError(
            f"{package} is installed but {error.name} is not", hint=f"install {error.name}"
        ) from None
    except ImportError as error:
        raise EnvironmentMissingError(
            f"{package} is installed but does not load: {error}",
            hint=hint
            or f"install it again with: pip install --force-reinstall 'anoco-edge[{extra}]'",
        ) from None
