"""The console in Debian's Chromium, driven by Playwright: no other browser is downloaded."""
import os
import pathlib
import shutil
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "server"))  # serve.py

PATIENCE_MS = 120_000


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        assert os.environ.get("CI") != "true", "there is no chromium"
        pytest.skip("there is no chromium")
    playwright.expect.set_options(timeout=PATIENCE_MS)
    options = ["--disable-dev-shm-usage"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=options)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Opens the console of a URL in a fresh profile. Afterwards nothing may have gone wrong in the page, nor been asked of another origin."""
    contexts, faults, requests = [], [], []

    def open_page(url, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: requests.append((url, request.url)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
    assert [asked for url, asked in requests if not asked.startswith((url, "data:"))] == []
