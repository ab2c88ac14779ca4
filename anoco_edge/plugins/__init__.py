"""Tables of what can be chosen by name, which installed packages can extend."""

from anoco_edge.plugins.registry import Registry, Spec

__all__ = ["Registry", "Spec"]
