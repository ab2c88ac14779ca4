"""An HTTP service with the standard library alone: a picture comes in, a verdict goes out.

    python examples/python_service/service.py line.anoco --port 8080
    curl --data-binary @part.png http://localhost:8080/inspect

answers with the object that `infer` writes to results.jsonl. One detector serves all requests;
where it can it runs in libanoco_edge, which lets them be inspected side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from anoco_edge import AnocoError, Detector
from anoco_edge.errors import EnvironmentMissingError, PictureError
from anoco_edge.images.decode import decode_picture

MOST_BYTES = 64_000_000


def open_detector(bundle: Path, product: str | None) -> Detector:
    """Native where that is possible; the reason why not is worth a line."""
    try:
        return Detector.open(bundle, product, runtime="native")
    except EnvironmentMissingError as error:
        print(f"inspecting in Python: {error}", file=sys.stderr, flush=True)
        return Detector.open(bundle, product)


class Service(ThreadingHTTPServer):
    """Holds the detector that all requests share."""

    daemon_threads = True

    def __init__(self, port: int, detector: Detector) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.detector = detector


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        """Whether the service is alive, and what it inspects."""
        detector = self.server.detector
        product = {"product": detector.product.name, "generation": detector.product.generation}
        self._answer(200, {**product, "runtime": detector.runtime})

    def do_POST(self) -> None:
        """The body is a picture file: PNG, JPEG, whatever Pillow reads."""
        if self.path != "/inspect":
            self._answer(404, {"error": f"there is no {self.path}; POST pictures to /inspect"})
            return
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= MOST_BYTES:
            self._answer(413, {"error": f"a body of {length} bytes; send 1 to {MOST_BYTES}"})
            return
        try:
            picture = decode_picture(self.rfile.read(length), "the picture")
            self._answer(200, self.server.detector.inspect(picture).to_row())
        except PictureError as error:
            self._answer(422, {"error": str(error)})
        except AnocoError as error:
            self._answer(500, {"error": str(error)})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not a line for every request."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--product")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    options = parser.parse_args()
    try:
        service = Service(options.port, open_detector(options.bundle, options.product))
    except AnocoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    with service:
        print(f"listening on http://127.0.0.1:{service.server_port}", flush=True)
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
