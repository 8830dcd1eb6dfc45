"""The last line of a run on several processes that has lost one."""

import contextlib
from types import SimpleNamespace

import pytest

from plmctl.config.spec import Provenance
from plmctl.runs import session
from plmctl.training.processes.launch import LAUNCHED


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


@pytest.mark.parametrize(
    ("processes", "restarts", "launched", "starts"),
    [(1, 0, False, False), (1, 3, False, True), (1, 3, True, False), (2, 0, False, True)],
)
def test_one_process_that_may_start_anew_has_a_launcher(
    processes, restarts, launched, starts, monkeypatch
):
    if launched:
        monkeypatch.setenv(LAUNCHED, "1")
    spec = SimpleNamespace(train=SimpleNamespace(processes=processes, restarts=restarts))
    monkeypatch.setattr(session, "_open", lambda spec, prepare, lock: (spec, None, None))
    monkeypatch.setattr(session.rundir, "lock_folder", lambda folder: contextlib.nullcontext({}))
    monkeypatch.setattr(session, "_launch", lambda spec, lock: "launched")
    monkeypatch.setattr(session, "_sitting", lambda *given: "here")
    code = session._run_session(spec, None, None, None)
    assert code == ("launched" if starts else "here")
