"""Checks of a page: no errors, requests, empty plots, overlapping or truncated labels, or horizontal scrolling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIDE, PHONE = (1280, 900), (390, 844)
DATA = "rect.data, path.data, circle.data, line.data"

_LABELS = """
() => [...document.querySelectorAll(".plot > svg, svg#chart")].flatMap(svg => {
  const around = svg.getBoundingClientRect(), found = [], where = svg.getAttribute("aria-label");
  const texts = [...svg.querySelectorAll("text")]
    .map(text => [text.textContent, text.getBoundingClientRect()])
    .filter(([, box]) => box.width > 0);
  for (const [text, box] of texts)
    if (box.left < around.left - 1.5 || box.right > around.right + 1.5
        || box.top < around.top - 1.5 || box.bottom > around.bottom + 1.5)
      found.push(`cut off: ${text} in ${where}`);
  texts.forEach(([a, one], i) => texts.slice(i + 1).forEach(([b, other]) => {
    const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    if (across > 1 && down > 3) found.push(`${a} on ${b} in ${where}`);
  }));
  return found;
})
"""
_EMPTY = """
data => [...document.querySelectorAll(".plot > svg")].filter(svg => {
  const boxes = [...svg.querySelectorAll(data)].map(part => part.getBoundingClientRect());
  return !boxes.some(box => box.width > 0 || box.height > 0);
}).map(svg => svg.getAttribute("aria-label"))
"""
_FLAT = """
() => [...document.querySelectorAll("canvas")].filter(canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (let k = 0; k < pixels.length; k += 404) seen.add(`${pixels[k]},${pixels[k + 1]},${pixels[k + 2]}`);
  return seen.size < 4;
}).length
"""


@dataclass
class Seen:
    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def assert_sound(self, *, empty: tuple[str, ...] = ()) -> None:
        """Check everything; `empty` names the plots that may be empty."""
        assert self.errors == []
        assert len(self.requests) == 1, f"the page fetched {self.requests[1:]}"
        assert [name for name in self.page.evaluate(_EMPTY, DATA) if name not in empty] == []
        assert self.page.evaluate(_FLAT) == 0, "an empty map"
        self.assert_readable()

    def assert_readable(self) -> None:
        assert self.page.evaluate(_LABELS) == []
        wide, room = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room, "the page scrolls sideways"


@contextmanager
def opened(browser: Any, file: Path, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Seen]:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, has_touch=size == PHONE
    )
    page = context.new_page()
    seen = Seen(page)
    page.on(
        "console", lambda message: seen.errors.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(file.resolve().as_uri())
    # Not wait_for_function, which evaluates a text repeatedly: the CSP of the pages forbids it.
    page.locator(".plot:not(:has(svg))").first.wait_for(state="detached")
    yield seen
    context.close()
