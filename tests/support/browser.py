"""Chromium for tests of pages."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """Chromium over the WebDriver protocol, as chromedriver speaks it."""

    def __init__(self, driver, session):
        self._base = f"{driver}/session/{session}"

    def __call__(self, method, path="", body=None):
        return ask(method, f"{self._base}/{path}".rstrip("/"), body)

    def run(self, script):
        return self("POST", "execute/sync", {"script": script, "args": []})

    def until(self, script, seconds=30):
        """What a script returns, once it is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.1)
        return value

    def errors(self):
        """What the browser has said of errors since the last call."""
        lines = self("POST", "se/log", {"type": "browser"})
        return [each["message"] for each in lines if each["level"] == "SEVERE"]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self("GET", "screenshot")))


def ask(method, address, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())["value"]


@contextmanager
def opened(profile, size="1280,900", *arguments):
    """Chromium without a window; skips the test where it is not installed.

    Args:
        profile: a new folder.
        size: of its window, pixels.
        arguments: further ones of the command line.
    """
    driver = shutil.which("chromedriver")
    if not (CHROMIUM and driver):
        pytest.skip("chromium and chromedriver are not installed; apt install chromium-driver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 60
        while True:
            try:
                ask("GET", f"http://127.0.0.1:{port}/status")
                break
            except OSError:
                assert time.monotonic() < end, "chromedriver does not answer"
                time.sleep(0.1)
        options = {
            "binary": CHROMIUM,
            "args": [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                f"--window-size={size}",
                "--disable-quic",
                f"--user-data-dir={profile}",
                *arguments,
            ],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        body = {"capabilities": {"alwaysMatch": wanted}}
        session = ask("POST", f"http://127.0.0.1:{port}/session", body)["sessionId"]
        found = Browser(f"http://127.0.0.1:{port}", session)
        yield found
        found("DELETE")
    finally:
        process.terminate()
        process.wait(20)
