"""Pages in a real browser, for every test that looks at one: they open from disk and fetch nothing."""

from __future__ import annotations

import re

import pytest
from tests.browser.install_browser import find_browser
from tests.processes import PATIENCE_SECONDS

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MILLISECONDS = 1000 * PATIENCE_SECONDS
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_browser()
    if path is None:
        pytest.skip("no chromium or google-chrome on this machine, and none could be installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS, timeout=PATIENCE_MILLISECONDS)
        yield running
        running.close()


@pytest.fixture
def visit(browser):
    """Opens a file as a page; at the end nothing may have gone wrong in it, and nothing else may have been asked for."""
    contexts, trouble, requests, opened = [], [], [], []

    def go(path, **settings):
        context = browser.new_context(**settings)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        contexts.append(context)
        opened.append(path.as_uri())
        page.goto(path.as_uri())
        return page

    yield go
    for context in contexts:
        context.close()
    assert trouble == []
    assert requests == opened


def figure_of(page, number=0):
    figure = page.locator("figure.chart").nth(number)
    figure.scroll_into_view_if_needed()
    figure.locator(".plot > svg").wait_for()
    return figure


def corners(figure, number):
    """Where the points of a drawn line are, in the window."""
    path = figure.locator("path.line[d]").nth(number).get_attribute("d")
    box = figure.locator(".plot > svg").bounding_box()
    found = [tuple(map(float, pair.split())) for pair in re.split("[ML]", path)[1:]]
    return [(box["x"] + x, box["y"] + y) for x, y in found]


def values(figure):
    """The text of the box with values, which has to be in sight."""
    box = figure.locator(".values")
    assert box.is_visible()
    return box.inner_text()


def overflow(page):
    """By how many pixels the page is wider than its window; tables scroll within their own box."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
