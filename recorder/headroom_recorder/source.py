"""Lines of the program, without the folders of its files."""

import os
import sys
from functools import lru_cache

import torch

TORCH = os.path.dirname(torch.__file__) + os.sep
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Files in these folders are not the program's.
foreign = [TORCH, HERE, "<"]


@lru_cache(maxsize=None)
def name(path):
    """Name of a file: within its package, or without folder. An empty text for PyTorch and for the recorder itself."""
    if path.startswith(tuple(foreign)):
        return ""
    for folder in ("site-packages", "dist-packages"):
        before, found, after = path.partition(os.sep + folder + os.sep)
        if found:
            return after.replace(os.sep, "/")
    is_standard = path.startswith(os.path.dirname(os.__file__) + os.sep)
    return "" if is_standard else os.path.basename(path)


def line():
    """The innermost line of the program, as `model.py:67 forward`; an empty text in a thread of autograd."""
    frame = sys._getframe(1)
    while frame is not None:
        file = name(frame.f_code.co_filename)
        if file:
            return f"{file}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def is_in(file):
    """Whether a function of a file runs."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(file):
            return True
        frame = frame.f_back
    return False
