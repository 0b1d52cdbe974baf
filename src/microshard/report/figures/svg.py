"""From matplotlib's SVG to one that lives in a page: themed, cropped, with ids nobody else uses."""

import re
from xml.etree import ElementTree as ET

from microshard.report.figures.style import COLOURS, HEADING

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_HEX = re.compile(r"#[0-9a-fA-F]{6}\b")
_URL = re.compile(r"url\(#([^)]+)\)")
_VARIABLES = {light: f"var(--{role})" for role, (light, _) in COLOURS.items()}


def for_page(source: str, name: str, alt: str, crop_top: float) -> str:
    """SVG text to be put into HTML.

    `name` prefixes every id, `alt` is the text alternative, `crop_top` the height of the heading in points, which is
    left out because the page has it as text.
    """
    root = ET.fromstring(source)  # noqa: S314 - our own picture
    _remove_heading(root)
    used = _references(root)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        _mend(element, name, used)
    left, top, width, height = (float(number) for number in root.attrib["viewBox"].split())
    root.attrib.clear()
    root.set("viewBox", f"{left:g} {top + crop_top:g} {width:g} {height - crop_top:g}")
    root.set("class", "picture")
    root.set("role", "img")
    root.set("aria-label", alt)
    root.set("focusable", "false")
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _remove_heading(root: ET.Element) -> None:
    for parent in list(root.iter()):
        for child in list(parent):
            if child.get("id", "").startswith(HEADING) or child.tag.endswith("metadata"):
                parent.remove(child)


def _references(root: ET.Element) -> set[str]:
    """Ids that something points to; all others are noise."""
    used = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            used.update(_URL.findall(value))
            if key.endswith("href"):
                used.add(value.removeprefix("#"))
    return used


def _mend(element: ET.Element, name: str, used: set[str]) -> None:
    for key, value in list(element.attrib.items()):
        if key == "id":
            if value in used:
                element.set(key, f"{name}-{value}")
            else:
                del element.attrib[key]
        elif key == f"{{{_XLINK}}}href":
            del element.attrib[key]
            element.set("href", f"#{name}-{value.removeprefix('#')}")
        else:
            themed = _HEX.sub(lambda match: _VARIABLES.get(match[0].lower(), match[0]), value)
            themed = _URL.sub(rf"url(#{name}-\1)", themed)
            if key in {"fill", "stroke"} and themed.startswith("var("):
                # a presentation attribute knows no variables, a style does
                del element.attrib[key]
                element.set("style", f"{element.get('style', '')};{key}:{themed}".lstrip(";"))
            else:
                element.set(key, themed)
