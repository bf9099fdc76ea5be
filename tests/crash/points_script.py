"""A script that logs, and notes outside the home what it has logged: the step and the time, after each call returned.

    python points_script.py NOTES STEPS [--until FILE] [--fails INDEX] [--off SECONDS]

With --until it logs until there is this file. With --fails the replica of that index, of two, ends with an error after
its steps, when points of the other one are in its stream too; that one goes on for long. With --off the clock of
replica 1 is wrong by so much.
"""

from __future__ import annotations

import argparse
import os
import random
import time

real = time.time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("notes")
    parser.add_argument("steps", type=int)
    parser.add_argument("--until", default="")
    parser.add_argument("--fails", type=int)
    parser.add_argument("--off", type=float, default=0.0)
    options = parser.parse_args()
    index = int(os.environ.get("SHOAL_INDEX", "0"))
    if options.off and index == 1:
        time.time = lambda: real() + options.off  # before anybody looks at it
    import shoal

    me = os.environ.get("SHOAL_REPLICA", f"pid-{os.getpid()}")
    shoal.init(name=me)
    notes = os.open(os.path.join(options.notes, me), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chance = random.Random(me)
    steps = options.steps if options.fails in (None, index) else 100 * options.steps
    for step in range(steps):
        if os.path.exists(options.until):
            break
        shoal.log({"loss": step * 0.5, "accuracy": step * 0.25}, step=step)
        os.write(notes, f"{step} {real()!r}\n".encode())
        if options.fails is not None and step == 0:
            shoal.sdk.session.current().flush()
            open(os.path.join(options.notes, f"begun-{index}"), "x").close()
        time.sleep(chance.random() * 0.01)
    if options.fails == index:
        while not os.path.exists(os.path.join(options.notes, f"begun-{1 - index}")):
            time.sleep(0.01)
        raise ValueError("the loss is not a number")


if __name__ == "__main__":
    main()
