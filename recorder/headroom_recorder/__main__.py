"""python FOLDER/headroom_recorder [OPTIONS] -- SCRIPT.py … | -m MODULE …: what `headroom record` runs."""

import os
import sys

# Python starts a folder with the folder itself in front of the search path.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from headroom_recorder.command import main

status = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
# Threads of autograd may still call the functions that were replaced, so Python does not take them down.
os._exit(status)
