"""The archive that travels: the launcher and the SDK in one zip file, importable by any Python from 3.8 on.

It is on the PYTHONPATH of every replica, so `import shoal` works in any virtual environment and image, and brings none
of Shoal's own dependencies along.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from typing import List

TRAVELS = (
    "__init__.py",
    "errors.py",
    "states.py",
    "logformat.py",
    "names.py",
    "journal.py",
    "journalfile.py",
    "frameworks",
    "launcher",
    "sdk",
    "integrations",
)

MAIN = """\
import sys

from shoal.launcher import listening

if sys.argv[1:] == [listening.WORD]:
    sys.exit(listening.wait())
if sys.argv[1:] == ["stacks"]:
    from shoal.launcher import stacks

    sys.exit(stacks.main(sys.argv[0]))
listening.listen()

from shoal.launcher.pod import main

sys.exit(main())
"""


def archive(directory: str) -> str:
    """The path of the archive below `directory`, written when it is not there. Its name changes with its content."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = sorted(_files(package))
    digest = hashlib.sha256()
    digest.update(MAIN.encode())
    for name in files:
        digest.update(name.encode() + b"\0")
        with open(os.path.join(package, name), "rb") as file:
            digest.update(file.read() + b"\0")
    path = os.path.join(directory, f"shoal-{digest.hexdigest()[:16]}.zip")
    if not os.path.exists(path):
        os.makedirs(directory, exist_ok=True)
        temporary = f"{path}.{os.getpid()}.new"
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("__main__.py", MAIN)  # where nobody forks a launcher, it is started from here
            for name in files:
                target.write(os.path.join(package, name), "shoal/" + name)
        os.replace(temporary, path)
    return path


def _files(package: str) -> List[str]:
    found = []
    for part in TRAVELS:
        place = os.path.join(package, part)
        if part.endswith(".py"):
            found.append(part)
        else:
            found += [f"{part}/{name}" for name in os.listdir(place) if name.endswith(".py")]
    return found
