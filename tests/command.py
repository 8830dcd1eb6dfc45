"""The command line in this process, for tests."""

from __future__ import annotations

from typer.testing import CliRunner

from plmctl.cli.app import make_app


def plmctl(*words: str, code: int = 0) -> str:
    """What `plmctl <words>` prints; with a `code` that is not 0, its messages, too."""
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output
