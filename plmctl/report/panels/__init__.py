"""The panels of a page about runs (of a study: `study_panels.py`).

Each is a function under `panel_of`, in any module of this folder or of a plug-in. A new one is part
of the next page; no other change is needed.
"""
