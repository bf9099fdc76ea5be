"""A tar that is asked for in parts is the same as one that came at once."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shoal.launcher.fetching import HASH
from shoal.server.archives import Laid, laid_out

NAMES = st.lists(st.text("abé/", min_size=1, max_size=120).map(lambda name: name.replace("/", "_")), unique=True)


@given(NAMES, st.data())
def test_the_rest_of_an_archive_joins_its_beginning(names: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        members = []
        for number, name in enumerate(names[:4]):
            size = data.draw(st.sampled_from([0, 1, 511, 512, 513, 300_000]))
            file = Path(place, str(number))
            file.write_bytes(bytes([number]) * size)
            members.append((name, file, size, hashlib.sha256(file.read_bytes()).hexdigest()))
        archive = Laid(members)
        whole = b"".join(laid_out(archive, 0))
        offset = data.draw(st.integers(0, archive.size))
        assert len(whole) == archive.size
        assert b"".join(laid_out(archive, offset)) == whole[offset:]
        with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
            assert [(m.name, m.size, m.pax_headers[HASH]) for m in tar] == [(n, s, h) for n, _, s, h in members]
