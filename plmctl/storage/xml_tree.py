"""Small XML files as a tree whose elements know their lines. No document type is read, so that
there are no entities that grow, and none from other files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from plmctl.core.errors import DataError


@dataclass
class Element:
    """One element: its name, its attributes, the text directly in it, its children, its line."""

    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, name: str) -> Element | None:
        """The first child with that name."""
        return next((child for child in self.children if child.name == name), None)

    def find_all(self, *names: str) -> Iterator[Element]:
        """The children whose names, from child to child, are these."""
        for child in self.children:
            if child.name == names[0]:
                yield from child.find_all(*names[1:]) if names[1:] else [child]


def parse_xml(content: str, file: Path) -> Element:
    """The root of an XML document.

    Raises:
        DataError: It is no XML, or has a document type.
    """
    parser = expat.ParserCreate("utf-8")  # as which the file was decoded, whatever it says
    parser.buffer_text = True
    above = [Element("", {}, 0)]

    def start(name: str, attributes: dict[str, str]) -> None:
        made = Element(name, attributes, parser.CurrentLineNumber)
        above[-1].children.append(made)
        above.append(made)

    def add(text: str) -> None:
        above[-1].text += text

    def refuse(*given: object) -> None:
        fix = "leave <!DOCTYPE ...> out: entities of its own are not read"
        raise DataError(
            "the file has a document type", file=file, line=parser.CurrentLineNumber, fix=fix
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: above.pop()
    parser.CharacterDataHandler = add
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        problem = f"no XML ({expat.ErrorString(error.code)})"
        fix = "write & as &amp; and < as &lt; in texts, and close every element"
        raise DataError(problem, file=file, line=error.lineno, fix=fix) from error
    return above[0].children[0]
