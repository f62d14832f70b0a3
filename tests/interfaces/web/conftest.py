"""A real browser, where there is one."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from tests.support.needs import skip_or_fail
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = os.environ.get("RALPH_TEST_CHROMIUM") or shutil.which("chromium") or ""
"""Debian's; none is ever downloaded."""

_PATIENCE = CAP * 1000  # milliseconds

expect.set_options(timeout=_PATIENCE)  # it would give up after 5 s

_QUIET = (
    "--no-sandbox",  # its own sandbox needs more than a container gives to root
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",  # 64 MB in a container
)


@pytest.fixture(scope="module")  # its event loop is that of the thread, and in the way of other tests
def chromium() -> Iterator[Browser]:
    """Return Chromium; without it the test is skipped, unless it has to be there."""
    if not CHROMIUM:
        skip_or_fail("no Chromium is installed: apt-get install chromium", "REQUIRE_BROWSER")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_QUIET)
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[BrowserContext]:
    """Return a browser that knows nothing yet."""
    context = chromium.new_context()
    context.set_default_timeout(_PATIENCE)
    yield context
    context.close()


@pytest.fixture
def scriptless(chromium: Browser) -> Iterator[BrowserContext]:
    """Return a browser in which no script runs."""
    context = chromium.new_context(java_script_enabled=False)
    context.set_default_timeout(_PATIENCE)
    yield context
    context.close()
