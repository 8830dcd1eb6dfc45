"""Reports of runs, from `metrics.jsonl` alone: chart (curves as SVG), page (Markdown and HTML), runs (what a folder says)."""
