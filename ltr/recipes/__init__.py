"""The recipes: one folder each, with a README and YAML files. Do not import anything from here.

`ltr recipes` lists them, `ltr fit --config NAME` trains one, `ltr copy NAME DEST` copies its file.
"""
