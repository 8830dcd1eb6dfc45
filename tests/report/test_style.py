"""Colours of a report, light and dark: text and lines stand out as WCAG 2.2 asks."""

from __future__ import annotations

import re

import pytest

from plmctl.report.style import DARK_SERIES, SERIES, STYLE

Colour = tuple[float, ...]  # red, green, blue, from 0 to 1
TEXT, GRAPHIC = 4.5, 3.0  # least contrast (1.4.3 and 1.4.11)


def read(colour: str) -> Colour:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def luminance(colour: Colour) -> float:
    """Relative luminance of sRGB."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: Colour, other: Colour) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def lay(colour: Colour, opacity: float, ground: Colour) -> Colour:
    return tuple(opacity * c + (1 - opacity) * g for c, g in zip(colour, ground, strict=True))


def named(scheme: str) -> dict[str, Colour]:
    """The colours that the style sheet names, in a scheme."""
    light, dark = STYLE.split("@media(prefers-color-scheme:dark)")
    found = re.findall(r"--(\w+):(#\w{6})", light if scheme == "light" else dark)
    return {name: read(colour) for name, colour in found}


def test_contrast_of_known_pairs() -> None:
    assert contrast(read("#ffffff"), read("#000000")) == pytest.approx(21.0)
    assert contrast(read("#777777"), read("#ffffff")) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize(("scheme", "series"), [("light", SERIES), ("dark", DARK_SERIES)])
def test_text_and_lines_stand_out(scheme: str, series: tuple[str, ...]) -> None:
    known = named(scheme)
    assert set(known) == {"paper", "ink", "rule", "soft", "link"}
    paper, ink = known["paper"], known["ink"]
    shaded = lay(read(SERIES[0]), 0.4, paper)  # the darkest cell of a table
    token = lay(read(series[0]), 0.5, paper)  # the darkest box behind a token
    numbers = [lay(read(colour), 0.4, paper) for colour in series]  # and behind a number
    for ground in (paper, known["soft"], shaded, token, *numbers):
        assert contrast(ink, ground) >= TEXT
    assert contrast(known["link"], paper) >= TEXT
    assert all(contrast(read(colour), paper) >= GRAPHIC for colour in series)
