"""A file that does not import is told of and left out; the others load."""

import there_is_no_such_module  # noqa: F401
