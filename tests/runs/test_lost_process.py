"""The last line of a run on several processes that has lost one."""

from types import SimpleNamespace

import pytest

from plmctl.config.spec import Provenance
from plmctl.runs import session


@pytest.mark.parametrize(("code", "says"), [(137, True), (70, True), (0, False), (1, False)])
def test_a_lost_process_ends_with_the_line_that_goes_on(code, says, monkeypatch, capfd):
    monkeypatch.setattr(session, "launch", lambda *given, **more: code)
    spec = SimpleNamespace(
        provenance=Provenance("finetune"),
        run=SimpleNamespace(dir="my runs/a"),
        train=SimpleNamespace(processes=2, restarts=0),
    )
    assert session._launch(spec, {}) == code
    said = capfd.readouterr().err
    assert ("plmctl finetune --resume run.dir=" in said) == says
