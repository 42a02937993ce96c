"""The browser of the page's tests, for the report."""

from tests.views.page.browser.conftest import browser

__all__ = ["browser"]
