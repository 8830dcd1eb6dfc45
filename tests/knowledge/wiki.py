"""Tiny exports of a wiki."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="en">
  <siteinfo>
    <sitename>Test wiki</sitename>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" />
      <namespace key="1">Talk</namespace>
      <namespace key="6">File</namespace>
      <namespace key="14">Category</namespace>
    </namespaces>
  </siteinfo>
"""


def page(title: str, text: str, *, redirect: str = "", number: int = 0) -> str:
    """A page; `text` is XML already."""
    sent = f'\n    <redirect title="{escape(redirect)}" />' if redirect else ""
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{number}</ns>{sent}\n"
        f"    <revision>\n      <text>{text}</text>\n    </revision>\n  </page>\n"
    )


def export(pages: Iterable[str]) -> str:
    """An export of pages."""
    return _HEAD + "".join(pages) + "</mediawiki>\n"
