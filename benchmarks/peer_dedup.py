"""datatrove's side of dedup.py, which starts this script in an environment that has `datatrove`.

    python benchmarks/peer_dedup.py corpus/ out/ --tasks 16 --workers 2

It runs the four stages of MinHash deduplication with datatrove's defaults, and writes
`firsts.json`: the ids that would stay if each cluster kept its first document.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any


def run_stages(corpus: str, out: Path, tasks: int, workers: int) -> None:
    """Signatures, buckets, clusters, and the documents that stay."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from datatrove.utils.hashing import HashConfig

    config = choose_config(MinhashConfig, HashConfig)
    reader = JsonlReader(corpus)
    work = str(out / "work")
    stages: list[tuple[list[Any], int]] = [
        ([reader, MinhashDedupSignature(f"{work}/signatures", config)], tasks),
        (
            [MinhashDedupBuckets(f"{work}/signatures", f"{work}/buckets", config=config)],
            config.num_buckets,
        ),
        (
            [
                MinhashDedupCluster(
                    f"{work}/buckets", f"{work}/remove", config=config, save_cluster_id=True
                )
            ],
            1,
        ),
        ([reader, MinhashDedupFilter(f"{work}/remove"), JsonlWriter(str(out))], tasks),
    ]
    for number, (pipeline, count) in enumerate(stages):
        logs = f"{work}/logs{number}"
        # processes that this one waits for, so that their seconds are counted
        how: Any = {"logging_dir": logs, "start_method": "fork"}
        LocalPipelineExecutor(pipeline, tasks=count, workers=workers, **how).run()


def choose_config(config: Any, hashing: Any) -> Any:
    """The defaults; with SHA-1 where the installed xxhash does not take texts."""
    try:
        from datatrove.utils.hashing import create_hash_func

        create_hash_func(hashing())("a text")
    except TypeError:
        return config(hash_config=hashing(hash_fc="sha1"))
    return config()


def find_firsts(corpus: Path, out: Path) -> list[str]:
    """The ids of all documents but those of a cluster that are not its first one."""
    firsts: list[str] = []
    seen: set[int] = set()
    for number, file in enumerate(sorted(corpus.glob("*.jsonl"))):
        clusters = out / "work" / "remove" / f"{number:06}.clusters"
        content = clusters.read_bytes() if clusters.exists() else b""
        of = {document: cluster for document, cluster in struct.iter_unpack("<2I", content)}
        with file.open(encoding="utf-8") as stream:
            for document, line in enumerate(stream):
                cluster = of.get(document)
                if cluster is None or cluster not in seen:
                    firsts.append(json.loads(line)["id"])
                    seen |= set() if cluster is None else {cluster}
    return firsts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    out = Path(given.out)
    run_stages(given.corpus, out, given.tasks, given.workers)
    (out / "firsts.json").write_text(json.dumps(find_firsts(Path(given.corpus), out)))


if __name__ == "__main__":
    main()
