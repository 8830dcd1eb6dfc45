"""Tasks with labels: one module a task, and the packages `scores`, `readers`, `layouts` and
`answers`, lowest first.
"""
