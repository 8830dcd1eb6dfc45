"""Reports of runs: chart (curves as SVG), page (Markdown and HTML), runs (what a folder says), layers (what its model does)."""
