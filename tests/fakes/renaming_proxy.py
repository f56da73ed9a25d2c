"""A proxy over stdio that passes everything on to the program it is told, under a name of its own."""

import subprocess
import sys
import threading

child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert child.stdin is not None
assert child.stdout is not None


def relay_answers() -> None:
    assert child.stdout is not None
    for line in child.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


thread = threading.Thread(target=relay_answers)
thread.start()
for line in sys.stdin.buffer:
    child.stdin.write(line.replace(b'"name":"mcp-hub"', b'"name":"proxy"'))
    child.stdin.flush()
child.stdin.close()
child.wait()
thread.join()
