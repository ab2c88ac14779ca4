"""The command line. Every error leaves as one line on stderr and the documented exit code."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of `anoco-edge`."""
    from anoco_edge.cli.app import app
    from anoco_edge.errors import AnocoError

    try:
        app(prog_name="anoco-edge")
    except AnocoError as error:
        _leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        _leave("stopped", 130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nobody is left to talk to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("ANOCO_DEBUG"):
            raise
        message = " ".join(str(error).split())
        _leave(
            f"internal error: {type(error).__name__}: {message}; this is a bug, please report it "
            "(ANOCO_DEBUG=1 shows where)",
            1,
        )


def _leave(message: str, code: int) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"anoco-edge: {message}\n")
    sys.exit(code)
