"""The folders of commands that write data sets: one writer, one rule of going on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from plmctl.storage import resumable
from plmctl.storage.resumable import write_folder

ROWS = [f"row {n}" for n in range(10)]


def test_a_stopped_job_goes_on_in_the_file_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable, "_COMMIT", 0.0)

    def write(out: Path, stop: int | None = None) -> list[int]:
        seen: list[int] = []
        counted = {"rows": 0}

        def transform(rows: Sequence[str], first: int) -> Iterator[str]:
            if len(seen) == stop:
                raise KeyboardInterrupt
            seen.append(first)
            counted["rows"] += len(rows)
            return (f"{row}\n" for row in rows)

        with write_folder(out, {"made by": "a test"}, counted) as made:
            made.write_rows("train.txt", ROWS, transform, begin="head\n", together=4)
            made.write_rows("pairs/dev.txt", ROWS[:5], transform, together=4)
            made.write("note.txt", "x")
        return seen

    assert write(tmp_path / "whole") == [0, 4, 8, 0, 4]
    for stop, left in ((1, [4, 8, 0, 4]), (4, [4])):
        out = tmp_path / f"parts-{stop}"
        with pytest.raises(KeyboardInterrupt):
            write(out, stop)
        assert not out.exists()
        assert write(out) == left
        for name in ("train.txt", "pairs/dev.txt", "note.txt", "made.json"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    record = json.loads((tmp_path / "whole" / "made.json").read_text())
    assert record == {"made by": "a test", "counted": {"rows": 15}}
    assert (tmp_path / "whole" / "train.txt").read_text().splitlines() == ["head", *ROWS]
