"""A headless Chromium, spoken to over its own pipe: what a page does where people look at it."""

import base64
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CHROMIUM = shutil.which("chromium")
_PATIENCE = 60.0
_COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_HEIGHT = "Math.ceil(document.documentElement.getBoundingClientRect().height)"


class Seen(NamedTuple):
    """What became of a page.

    Attributes:
        complaints: errors of scripts, and whatever was written to the console.
        requests: the addresses that were asked for.
        overflow: by how many pixels the page is wider than the window.
        picture: a PNG of the whole page.
        answer: what the last expression came to.
    """

    complaints: list[str]
    requests: list[str]
    overflow: int
    picture: bytes
    answer: Any


class Browser:
    """Opens pages; see `open_browser`."""

    def __init__(self, out: int, into: int):
        self._out = os.fdopen(out, "rb", buffering=0)
        self._into = os.fdopen(into, "wb", buffering=0)
        self._buffer = b""
        self._last = 0
        self._events: list[dict[str, Any]] = []

    def look(self, page: Path | str, width: int, dark: bool, ask: str = "null") -> Seen:
        """Opens a page in a window of some width.

        Args:
            page: the file, or an address.
            width: of the window.
            dark: whether the reader prefers the dark.
            ask: an expression of JavaScript, evaluated when the page is there.
        """
        target = self._say("Target.createTarget", url="about:blank")["targetId"]
        session = self._say("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

        def say(method: str, **params: Any) -> dict[str, Any]:
            return self._say(method, session, **params)

        def value(expression: str) -> Any:
            answer = say("Runtime.evaluate", expression=expression, returnByValue=True)
            assert "exceptionDetails" not in answer, answer
            return answer["result"].get("value")

        self._events.clear()
        for domain in ("Page", "Runtime", "Network", "Log"):
            say(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        say("Emulation.setEmulatedMedia", features=scheme)
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        say("Emulation.setDeviceMetricsOverride", **screen)
        say("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self._wait("Page.loadEventFired", session)
        answer = value(ask)
        overflow = value(_WIDER)
        height = value(_HEIGHT)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = say("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        self._say("Target.closeTarget", targetId=target)
        sent = self._of(session, "Network.requestWillBeSent")
        return Seen(
            complaints=[json.dumps(e["params"]) for e in self._of(session, *_COMPLAINTS)],
            requests=[event["params"]["request"]["url"] for event in sent],
            overflow=overflow,
            picture=base64.b64decode(shot["data"]),
            answer=answer,
        )

    def close(self) -> None:
        """Closes our ends of the pipes."""
        self._out.close()
        self._into.close()

    def _of(self, session: str, *methods: str) -> list[dict[str, Any]]:
        return [e for e in self._events if e.get("sessionId") == session and e["method"] in methods]

    def _say(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._into.write(json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            answer = self._hear()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]
        raise TimeoutError(method)

    def _wait(self, event: str, session: str) -> None:
        end = time.monotonic() + _PATIENCE
        while not self._of(session, event):
            assert time.monotonic() < end, f"no {event}"
            self._hear()

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = self._out.read(1 << 20)
            assert piece, "Chromium has ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer = json.loads(message)
        if "method" in answer:
            self._events.append(answer)
        return answer


@contextmanager
def open_browser(home: Path) -> Iterator[Browser]:
    """A browser that keeps what it must keep below a folder, and ends with the block."""
    assert CHROMIUM is not None
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    # Chromium reads from 3 and writes to 4; the ends that it gets must be none of these.
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_read, back_write)]
    os.close(to_read)
    os.close(back_write)
    options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={home}"]
    options += ["--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    options += ["--disable-background-networking", "--disable-component-update"]
    log = (str(home / "chromium.log"), os.O_WRONLY | os.O_CREAT, 0o600)
    pid = os.posix_spawn(
        CHROMIUM,
        [CHROMIUM, *options],
        os.environ,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, theirs[0], 3),
            (os.POSIX_SPAWN_DUP2, theirs[1], 4),
            (os.POSIX_SPAWN_OPEN, 1, *log),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    for end in theirs:
        os.close(end)
    browser = Browser(back_read, to_write)
    try:
        yield browser
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        browser.close()
