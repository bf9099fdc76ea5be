"""Prints what wandb has recorded below a directory, as JSON: read by wandb's own reader, in its own environment.

{"config": {}, "summary": {}, "tags": [], "history": {name: {step: value}}, "defined": {name: {}}, "media": [{…}]}

With --pixels FILE… it prints [[width, height, bytes as hex], …] of images.
"""

import json
import sys
from pathlib import Path

MEDIA = ("histogram", "table-file", "image-file")


def main() -> None:
    if sys.argv[1] == "--pixels":
        print(json.dumps([pixels(Path(name)) for name in sys.argv[2:]]))
    else:
        (file,) = Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb")
        print(json.dumps(read(file)))


def pixels(path: Path) -> list:
    from PIL import Image

    with Image.open(path) as image:
        plain = image.convert("RGB")
        return [plain.width, plain.height, plain.tobytes().hex()]


def read(file: Path) -> dict:
    found = {"config": {}, "summary": {}, "tags": [], "history": {}, "defined": {}, "media": []}
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["tags"] = list(record.run.tags)
            put(found["config"], record.run.config.update)
        elif kind in ("config", "summary"):
            put(found[kind], getattr(record, kind).update)
        elif kind == "metric" and not record.metric.expanded_from_glob:
            metric = record.metric
            name = metric.name or metric.glob_name
            found["defined"][name] = {"x": metric.step_metric, "min": metric.summary.min}
        elif kind == "history":
            row = {}
            put(row, record.history.item)
            keep(found, row, file.parent / "files")
    return found


def records(file: Path):
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def put(tree: dict, items) -> None:
    for item in items:
        *path, last = list(item.nested_key) or [item.key]
        place = tree
        for name in path:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)


def keep(found: dict, row: dict, files: Path) -> None:
    step = row.pop("_step")
    for name, value in flat(row):
        if isinstance(value, dict):
            if value["_type"] == "table-file":
                value["content"] = json.loads((files / value["path"]).read_text())
            elif value["_type"] == "image-file":
                value["pixels"] = pixels(files / value["path"])
            found["media"].append({"name": name, "step": step, **value})
        elif not name.startswith("_"):
            found["history"].setdefault(name, {})[step] = value


def flat(row: dict, before: str = ""):
    for name, value in row.items():
        if isinstance(value, dict) and value.get("_type") not in MEDIA:
            yield from flat(value, f"{before}{name}/")
        else:
            yield before + name, value


if __name__ == "__main__":
    main()
