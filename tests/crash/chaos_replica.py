"""A replica of the chaos run. It keeps its own record outside the home: a line after each print, one before its exit.

python chaos_replica.py RECORDS LINES EXIT_CODE
"""

from __future__ import annotations

import os
import random
import sys
import time


def main() -> None:
    records, count, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    me = "-".join(os.environ[f"SHOAL_{name}"] for name in ("EXPERIMENT", "ATTEMPT", "REPLICA", "TRY"))
    record = os.open(os.path.join(records, me), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    rng = random.Random(me)
    for number in range(count):
        line = f"line {number} of {me}"
        print(line)  # unbuffered: the line and its end are written apart
        os.write(record, f"{line}\n".encode())
        time.sleep(rng.random() * 0.02)
    os.write(record, f"exit {code}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main()
