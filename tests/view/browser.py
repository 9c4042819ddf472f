"""A headless Chromium, driven over a pipe: it opens pages and looks into them."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--use-angle=swiftshader"),
    *("--enable-unsafe-swiftshader", "--no-first-run", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=900,600"),
)
_PATIENCE = 60.0  # seconds for an answer of the browser


def path() -> str | None:
    """The browser on this machine, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page. ``errors`` are messages of the console, ``requests`` addresses."""

    def __init__(self, folder: Path) -> None:
        (read, out), (inp, write) = os.pipe(), os.pipe()
        # The browser reads commands from its file 3 and writes answers to its file 4.
        line = f'exec "$0" "$@" 3<&{inp} 4>&{out}'
        arguments = [*_OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", line, str(path()), *arguments],
            pass_fds=(inp, out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(inp)
        os.close(out)
        self._read, self._write, self._buffer, self._number = read, write, b"", 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._write)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def open(self, address: str) -> None:
        """Open a page and wait until it has loaded. Old errors and requests are forgotten."""
        for place in ("about:blank", address):
            self.errors, self.requests, self.loaded = [], [], False
            self.call("Page.navigate", url=place)
            end = time.monotonic() + _PATIENCE
            while not self.loaded:
                self._take(end)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} is not true after {_PATIENCE} s")
            time.sleep(0.05)

    def picture(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _PATIENCE
        while True:
            found = self._take(end)
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return dict(found["result"])

    def _take(self, end: float) -> dict[str, Any]:
        """The next message of the browser. Events are noted."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("the browser has ended or does not answer")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = dict(json.loads(text))
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
