"""Reviews in JSON: {"lamp": [{"text": ..., "stars": 4}, ...], "desk": ...}."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.split_files import SplitFiles, read_json
from plmctl.tasks.record import Example


@part_of("reader")
class ReviewFiles(SplitFiles):
    """One file a split; the reviews of each product are also scored apart."""

    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]:
        examples = []
        for product, reviews in read_json(file).items():
            for number, review in enumerate(reviews):
                name = f"{product}-{number}"
                if labelled and "stars" not in review:
                    raise DataError("a review without stars", file=f"{file}, {name}")
                label = str(review["stars"]) if "stars" in review else None
                text = {"text": review["text"]}
                examples.append(Example(name, text, label, place=str(file), slices=(product,)))
        return examples
