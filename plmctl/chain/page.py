"""What a finished chain shows: a table of its steps, on the terminal, as JSON and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.chain.run import Done
from plmctl.chain.steps import Chain
from plmctl.core.progress import clock
from plmctl.report.page import Block, Code, Heading, Paragraph, TableBlock, write_page

HEAD = ("step", "folder", "time", "figure")


def rows(done: Sequence[Done]) -> list[list[str]]:
    return [[each.step.name, str(each.place), clock(each.seconds), each.figure] for each in done]


def record(chain: Chain, done: Sequence[Done], code: int) -> dict[str, Any]:
    """The same for programs."""
    steps = [
        {
            "step": each.step.name,
            "folder": str(each.place),
            "seconds": round(each.seconds, 1),
            "figure": each.figure,
            "command": each.line,
        }
        for each in done
    ]
    return {"recipe": chain.recipe, "code": code, "steps": steps}


def write(chain: Chain, done: Sequence[Done], out: Path) -> Path:
    """`chain.md` and `chain.html` in the folder of the chain."""
    blocks: list[Block] = [
        Heading(f"The chain of {chain.recipe}", 1),
        Paragraph(chain.header.about),
        TableBlock(
            HEAD, [*rows(done), ["all", str(out), clock(sum(each.seconds for each in done)), ""]]
        ),
        Heading("The commands"),
        Code("\n".join(each.line for each in done)),
    ]
    write_page(blocks, out / "chain.md")
    return out / "chain.md"
