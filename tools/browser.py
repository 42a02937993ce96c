"""An installed Chromium, driven by playwright, with all that a page says and fetches recorded."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# before any script of the page: what its policy refuses, and a function that no payload may call
SPY = """
window.__refused = [];
window.__ran = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__refused.push([event.violatedDirective, event.blockedURI, event.sourceFile, event.lineNumber].join(" ")));
window.canary = (from) => void window.__ran.push(String(from));
"""


def find_chromium() -> str | None:
    """The browser's program: REGARD_CHROMIUM where it is set, else the first that is installed."""
    return os.environ.get("REGARD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def open_browser(**options: Any) -> Iterator[Any]:
    """A browser without a window; more options as playwright's `launch` has them."""
    from playwright.sync_api import sync_playwright

    program = find_chromium()
    assert program is not None, "no Chromium is installed: set REGARD_CHROMIUM"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], **options)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page in the browser, and everything that should not have happened there."""

    page: Any
    own: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, context: Any) -> Visit:
        """A new page of the context that records before anything is loaded."""
        visit = cls(context.new_page())
        visit.page.add_init_script(SPY)
        visit.page.on("request", lambda request: visit.requests.append(request.url))
        visit.page.on("pageerror", lambda error: visit.errors.append(f"uncaught: {error}"))
        visit.page.on("console", visit._hear)
        visit.page.on("dialog", visit._refuse)
        visit.page.on("popup", lambda popup: visit.errors.append(f"popup: {popup.url}"))
        return visit

    def open(self, path: pathlib.Path, hash: str = "") -> Any:
        """Opens the file and waits until the page says that it is ready."""
        url = path.resolve().as_uri()
        self.own.add(url)
        self.page.goto(url + (f"#{hash}" if hash else ""))
        self.page.wait_for_selector("html[data-ready]", timeout=15000)
        return self.page

    def find_faults(self) -> list[str]:
        """Errors, refusals of the policy, calls of the canary, and requests for anything but the file."""
        faults = list(self.errors)
        for frame in self.page.frames:
            faults += [f"policy: {text}" for text in frame.evaluate("window.__refused || []")]
            faults += [f"a payload ran: {text}" for text in frame.evaluate("window.__ran || []")]
        faults += [f"request: {url[:200]}" for url in self.requests if not self._is_own(url)]
        return faults

    def _is_own(self, url: str) -> bool:
        return url.split("#")[0] in self.own or url.startswith(("data:", "blob:", "about:"))

    def _hear(self, said: Any) -> None:
        if said.type in ("error", "warning", "assert"):
            self.errors.append(f"console {said.type}: {said.text}")

    def _refuse(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()
