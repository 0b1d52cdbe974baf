"""The page in a real browser: offline, readable, nothing overlapping, at three widths, light and dark, and in print."""

import itertools
import time
from pathlib import Path

import pytest

from tests.conftest import todays
from tests.report.browser import Browser
from tests.report.conftest import SHAPES

LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")
KINDS = todays(SHAPES, 3)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, pytest.param(768, marks=pytest.mark.long), 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_overlaps_sticks_out_or_is_too_pale(
    window: Browser, reports: dict[str, Path], kind: str, width: int, dark: bool
) -> None:
    window.open(reports[kind], width, dark)
    assert window.js(LOOK) == []


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("document.querySelector('h1').style.width = '2000px'", "sticks out of the page"),
        ("document.querySelector('#summary').style.marginBottom = '-30px'", "lies on"),
        ("document.querySelector('h1').style.color = '#999'", "contrast"),
        (
            "document.querySelectorAll('svg text').forEach((e) => { e.setAttribute('transform', ''); })",
            "labels overlap",
        ),
        ("document.querySelector('svg text').setAttribute('x', 5000)", "label outside its picture"),
        ("document.querySelector('svg').removeAttribute('aria-label')", "a picture without words"),
    ],
)
def test_the_look_finds_what_is_wrong(window: Browser, reports: dict[str, Path], fault: str, named: str) -> None:
    window.open(reports["whole"], 1280)
    window.js(fault)
    assert any(named in line for line in window.js(LOOK))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_opened_still_fits(window: Browser, reports: dict[str, Path], kind: str) -> None:
    window.open(reports[kind], 360)
    window.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert window.js(LOOK) == []


@pytest.mark.parametrize("kind", KINDS)
def test_page_asks_for_nothing_and_complains_of_nothing(window: Browser, reports: dict[str, Path], kind: str) -> None:
    window.open(reports[kind], 1280)
    window.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert [url for url in window.requests() if url not in {reports[kind].resolve().as_uri(), "data:,"}] == []
    assert window.complaints() == []


def test_dark_follows_the_reader_s_preference(window: Browser, reports: dict[str, Path]) -> None:
    colours = []
    for dark in (False, True):
        window.open(reports["whole"], 768, dark)
        page = window.js("getComputedStyle(document.body).backgroundColor")
        colours.append((page, window.js("getComputedStyle(document.querySelector('svg text')).fill")))
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] != colours[1][1]


def test_keyboard_reaches_and_opens_the_details(window: Browser, reports: dict[str, Path]) -> None:
    window.open(reports["whole"], 1280)
    window.press("Tab", 9)
    assert window.js("document.activeElement.className") == "skip"
    for _ in range(40):
        window.press("Tab", 9)
        if window.js("document.activeElement.tagName") == "SUMMARY":
            break
    window.press("Enter", 13)
    assert window.js("document.activeElement.parentElement.open") is True


def test_tables_that_are_wider_than_the_phone_can_be_scrolled_by_keyboard(
    window: Browser, reports: dict[str, Path]
) -> None:
    window.open(reports["whole"], 360)
    assert window.js("[...document.querySelectorAll('.scroll')].every((e) => e.tabIndex === 0)") is True
    assert (
        window.js("(() => { const e = document.querySelector('.scroll'); return e.scrollWidth > e.clientWidth; })()")
        is True
    )


def test_headings_have_no_gap_in_their_order(window: Browser, reports: dict[str, Path]) -> None:
    window.open(reports["whole"], 1280)
    levels = window.js("[...document.querySelectorAll('h1,h2,h3,h4')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_warnings_come_first(window: Browser, reports: dict[str, Path]) -> None:
    window.open(reports["troubled"], 1280)
    first = window.js("document.querySelector('main section').innerText")
    assert first.startswith("Read this first")
    assert "no valid measurement of 8 shards" in first
    assert "results/p02/r3.json" in first


@pytest.mark.parametrize("kind", KINDS)
def test_print_makes_a_pdf_in_which_nothing_is_cut(window: Browser, reports: dict[str, Path], kind: str) -> None:
    window.open(reports[kind], 700)  # about the width between the margins of A4
    window.call("Emulation.setEmulatedMedia", media="print")
    try:
        cut = window.js(
            "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
            ".map((e) => e.getAttribute('aria-label'))"
        )
        assert cut == []
        assert window.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    finally:
        window.call("Emulation.setEmulatedMedia", media="")
    document = window.pdf()
    assert document.startswith(b"%PDF")
    assert document.count(b"/Type /Page\n") + document.count(b"/Type /Page ") >= 1 or b"/Pages" in document


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_wrong_with_the_page(
    window: Browser, reports: dict[str, Path], kind: str, width: int, axe: str
) -> None:
    for dark in (False, True):
        window.open(reports[kind], width, dark)
        window.js("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
        assert violations(window, axe) == []


def test_axe_finds_a_table_that_cannot_be_reached_by_keyboard(
    window: Browser, reports: dict[str, Path], axe: str
) -> None:
    window.open(reports["whole"], 390)
    window.js("document.querySelector('.scroll').removeAttribute('tabindex')")
    window.js("document.querySelectorAll('.scroll a').forEach((e) => e.removeAttribute('href'))")
    assert "scrollable-region-focusable" in violations(window, axe)


def violations(window: Browser, axe: str) -> list[str]:
    """The rules of axe-core that the page breaks."""
    window.js(f"{axe}; 0")
    found: list[str] = window.js("axe.run(document).then((found) => found.violations.map((one) => one.id))")
    return found


@pytest.mark.parametrize("width", [390, 1300])
def test_a_table_that_goes_on_beyond_its_place_says_so(window: Browser, reports: dict[str, Path], width: int) -> None:
    window.open(reports["troubled"], width)
    for _ in range(50):  # the hint follows a change of the width, a frame or two later
        tables = window.js(
            "[...document.querySelectorAll('.scroll')].filter((e) => e.checkVisibility() && !e.closest('details'))"
            ".map((e) => [e.scrollWidth > e.clientWidth + 1, e.querySelector('.more').checkVisibility()])"
        )
        if all(wide == said for wide, said in tables):
            break
        time.sleep(0.1)
    assert all(wide == said for wide, said in tables)
    assert any(wide for wide, _ in tables) == (width == 390)
