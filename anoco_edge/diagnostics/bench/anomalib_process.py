"""Starts anomalib in a process of its own, with whichever Python has it installed."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from anoco_edge.bundle import Bundle
from anoco_edge.errors import EngineError, EnvironmentMissingError, UsageError

WORKER = Path(__file__).with_name("anomalib_worker.py")
CORESET = 0.1
"""The share of the patches that anomalib's PatchCore keeps by default."""


@dataclass(frozen=True)
class RivalRequest:
    """What the process builds: PatchCore of a backbone with a bank of the references."""

    backbone: str
    layers: tuple[str, ...]
    size: tuple[int, int]
    ratio: float
    references: tuple[str, ...]
    pictures: tuple[str, ...]
    precisions: tuple[str, ...]
    threads: int
    folder: str

    @staticmethod
    def of(
        bundle: Bundle,
        references: Sequence[Path],
        pictures: Sequence[Path],
        precisions: Sequence[str],
        threads: int,
        folder: str,
    ) -> RivalRequest:
        """Ask for the backbone of a bundle, if anomalib has the same one."""
        backbone, contract = bundle.manifest.backbone, bundle.manifest.input
        layers = tuple(backbone.tap.split("+"))
        if not all(name.startswith("layer") for name in layers):
            raise UsageError(
                f"the backbone {backbone.id} with {backbone.tap} is none of PatchCore's",
                hint="compare with a bundle of wrn50, which taps layer2 and layer3 as PatchCore",
            )
        return RivalRequest(
            backbone=backbone.architecture,
            layers=layers,
            size=(contract.height, contract.width),
            ratio=CORESET,
            references=tuple(str(path.absolute()) for path in references),
            pictures=tuple(str(path.absolute()) for path in pictures),
            precisions=tuple(precisions),
            threads=threads,
            folder=folder,
        )


class AnomalibProcess:
    """The running process; leaving its `with` block ends it."""

    def __init__(self, python: str, request: RivalRequest) -> None:
        self._python = python
        self._request = request
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (see close)
        self.bank: tuple[int, int] = (0, 0)
        self.versions: Mapping[str, str] = {}

    def __enter__(self) -> AnomalibProcess:
        # Not as a file: its folder would come first on sys.path, and hides modules of Python.
        program = WORKER.read_text(encoding="utf-8")
        try:
            self._process = subprocess.Popen(
                [self._python, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=self._request.folder or None,
            )
        except OSError as error:
            raise EnvironmentMissingError(
                f"{self._python} cannot be started: {error.strerror}",
                hint="name the Python of an environment that has anomalib with `rival_python`",
            ) from None
        try:
            built = self._ask(asdict(self._request))
        except BaseException:
            self.close()
            raise
        self.bank = (int(built["bank"][0]), int(built["bank"][1]))
        self.versions = built["versions"]
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, which stops when it has nothing more to read."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, picture: int, precision: str) -> float:
        """Run a picture by its number; returns the milliseconds."""
        return float(self._ask({"picture": picture, "precision": precision})["ms"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it ended; its answer or its stderr says why
        line = stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if missing := answer.get("missing"):
            raise EnvironmentMissingError(
                f"{missing} is needed to measure beside anomalib and is not installed for "
                f"{self._python}",
                hint="run pip install 'anomalib[openvino]' in an environment of its own (6.5 GB), "
                "and name its Python with `rival_python`",
            )
        if not answer:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            raise EngineError(
                f"anomalib failed: {lines[-1] if lines else 'it said nothing'}",
                hint="try another version of it",
            )
        return answer
