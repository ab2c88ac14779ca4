"""Late imports of torch, onnx and others, so that importing this package needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anoco_edge.errors import EnvironmentMissingError, missing


def lazy_import(module: str) -> Any:
    """Import a module that only an export needs, or raise an error that says what to install.

    >>> lazy_import("json").dumps([1])
    '[1]'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # Where an installed package lacks one of its own requirements, that one is named.
        raise missing(error.name or package, "export", "to export a backbone") from error
    except (ImportError, OSError, RuntimeError) as error:
        # Builds of torch and torchvision that do not fit each other fail like this on import.
        raise EnvironmentMissingError(
            f"{package} is installed but does not load: {error}",
            hint="reinstall it with what it depends on: pip install -U 'anoco-edge[export]'",
        ) from error
