"""What keeps people from using a page: what axe-core finds, small controls, too wide a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chromium import Browser
from npm_packages import with_packages
from paths import TESTS

SIZES = {"panel": (1024, 600), "phone": (390, 844), "desktop": (1600, 1000)}
# Controls that a finger must hit; a checkbox is hit through its label.
SMALL = """
const seen = each => each.checkVisibility() && !each.closest('dialog:not([open])');
const small = box => box.height < 47.5 || box.width < 43.5;
return [...document.querySelectorAll('button, .button, select, summary, nav a, '
    + 'input:not([type=checkbox]), .check, [role=slider]')].filter(seen)
  .filter(each => small(each.getBoundingClientRect()))
  .map(each => each.outerHTML.slice(0, 120))"""
WIDE = "return document.documentElement.scrollWidth - innerWidth"


def axe_script(folder: Path) -> str:
    """Install axe-core below a folder and return its script."""
    made = with_packages(TESTS / "support" / "accessibility", folder / "accessibility")
    return (made / "node_modules/axe-core/axe.min.js").read_text()


def obstacles(browser: Browser, axe: str) -> list[Any]:
    """Return what axe-core finds in the page that is shown (the first place of each rule), controls
    that a finger misses, and how much wider than its window the page is."""
    browser.run(axe + "; return null")
    violations = browser.run(
        "return axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)"
    )
    found = [
        (each["id"], each["nodes"][0]["html"][:200], each["nodes"][0]["failureSummary"][:300])
        for each in violations
    ]
    wide = browser.run(WIDE)
    return [*found, *browser.run(SMALL), *([f"{wide} pixels too wide"] if wide > 0 else [])]
