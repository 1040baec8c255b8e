"""`python -m headroom_recorder [OPTIONS] -- SCRIPT.py … | -m MODULE …`. `headroom record` runs the folder instead."""

import os
import sys

if not __package__:
    # Python starts a folder with the folder itself in front of the search path.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from headroom_recorder.command import main

status = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
# Threads of autograd may still call the functions that were replaced, so Python does not take them down.
os._exit(status)
