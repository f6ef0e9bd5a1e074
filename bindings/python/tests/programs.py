"""Programs that run in another interpreter."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


# A shell starts its programs in the background with Ctrl-C ignored, and so would these programs be.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def output(program, *arguments, env=None):
    """Returns what a program prints in another interpreter, where it must succeed."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout


def run(program, *arguments, limit=120):
    """Runs a program in another interpreter."""
    program = START + textwrap.dedent(program)
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
