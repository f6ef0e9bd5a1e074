"""Programs that run in another interpreter."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run(program, *arguments, limit=120):
    """Runs a program in another interpreter."""
    program = textwrap.dedent(program)
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
