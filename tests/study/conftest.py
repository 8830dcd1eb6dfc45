"""A folder with the toy's files, and studies parsed and planned in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.compose import compose
from plmctl.config.spec import Provenance
from plmctl.study import plan as planning
from plmctl.study.parse import parse
from plmctl.study.plan import StudyPlan
from plmctl.study.study import Study
from tests.study import toy_study


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toy_study.write_files(tmp_path)
    return tmp_path


@pytest.fixture
def parsed(here: Path) -> Callable[..., Study]:
    def make(*words: str, **changes: Any) -> Study:
        file = toy_study.write_study(here, **changes)
        return parse(compose("ablate", str(file), words))

    return make


@pytest.fixture
def planned(parsed: Callable[..., Study]) -> Callable[..., StudyPlan]:
    return lambda *words, **changes: planning.plan(parsed(*words, **changes), Provenance("ablate"))
