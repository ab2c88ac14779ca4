"""Tables of what can be chosen by name, which installed packages can extend."""

from anoco_edge.plugins.registry import Choice, Registry, Spec, StageRegistry, StageSpec

__all__ = ["Choice", "Registry", "Spec", "StageRegistry", "StageSpec"]
