"""A progress bar on the terminal."""

from __future__ import annotations

import sys
import time

_WIDTH = 40
_INTERVAL = 0.1  # seconds between two drawings


class Bar:
    """A bar on standard error, drawn at most ten times a second, and only if ``shown``.

    >>> bar = Bar(shown=False)
    >>> bar.update(0.5, "half")
    >>> bar.close()
    """

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self._drawn_at, self._drawn = 0.0, 0

    def update(self, fraction: float, text: str) -> None:
        """Draw the bar with a text after it, unless it was drawn a moment ago."""
        now = time.monotonic()
        if not self.shown or (fraction < 1 and now - self._drawn_at < _INTERVAL):
            return
        filled = round(_WIDTH * min(max(fraction, 0.0), 1.0))
        line = f"{'█' * filled}{'·' * (_WIDTH - filled)} {text}"
        sys.stderr.write(f"\r{line:<{self._drawn}}")
        sys.stderr.flush()
        self._drawn_at, self._drawn = now, len(line)

    def close(self) -> None:
        """End the line."""
        if self.shown and self._drawn:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._drawn = 0
