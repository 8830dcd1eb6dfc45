"""A run of few updates, for panels that show what is in its model."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from plmctl.cli import app as cli


def pretrain(folder: Path, recipe: str, *words: str) -> Path:
    """The run of `recipe` with these words, on 200 sentences, in `folder`."""
    text = "\n\n".join(f"{n} small stones walk by the house of the river" for n in range(200))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    own = [f"data.path={folder / 'text.txt'}", f"run.dir={folder / 'run'}"]
    done = CliRunner().invoke(cli.make_app(), ["pretrain", recipe, *own, *words])
    assert done.exit_code == 0, done.output
    return folder / "run"
