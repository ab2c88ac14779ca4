"""Late import of what only an export needs; the package itself imports without any of it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anoco_edge.errors import EnvironmentMissingError, missing


def load(module: str) -> Any:
    """Import a heavy module, or say what to install.

    >>> load("json").dumps([1])
    '[1]'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A package that is there but lacks something of its own is reported by that something.
        raise missing(error.name or package, "export", "to export a backbone") from error
    except (ImportError, OSError, RuntimeError) as error:
        # torch and torchvision builds that do not fit each other fail like this on import.
        raise EnvironmentMissingError(
            f"{package} is installed but does not load: {error}",
            hint="reinstall it together with its partners: pip install -U 'anoco-edge[export]'",
        ) from error
