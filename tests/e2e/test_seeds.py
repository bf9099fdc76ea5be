"""Every YAML block of the documents of origin, completed to a whole file and as it was pasted.

The documents lie beside the checkout; without them this file is not collected and the header of the test run says so.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

import pytest

from shoal.errors import FileProblems
from shoal.plan import plan
from shoal.spec import Source, interpret
from tests.conftest import SEEDS

BLOCK = re.compile(r"^```(yaml|bash|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    document: str
    number: int
    text: str

    @property
    def framework(self) -> str:
        """The framework the document speaks of; the first speaks of several, the block's section then says which."""
        title = (SEEDS / self.document).read_text()
        return next(
            (name for name in ("Pytorch", "MXNet", "Tensorflow") if f'title: "{name}"' in title), "tensorflow"
        ).lower()


def blocks(language: str) -> list[Block]:
    return [
        Block(path.name, number, match.group(2))
        for path in sorted(SEEDS.glob("*.txt"))
        for number, match in enumerate(BLOCK.finditer(path.read_text()))
        if match.group(1) == language
    ]


def completed(block: Block) -> str:
    """A whole file around a block: `...` removed, a fragment put where it belongs, a command added."""
    text = "\n".join(line for line in block.text.splitlines() if line.strip() != "...") + "\n"
    first = text.split(":")[0].strip()
    if first == "resources":
        text = "environment:\n" + textwrap.indent(text, "  ")
    elif first in ("worker_resources", "default_worker"):
        text = "environment:\n  replicas:\n    n_workers: 7\n" + textwrap.indent(text, "    ")
    text += "run: {cmd: python train.py}\n"
    has_section = re.search(r"^  (tensorflow|mxnet|pytorch):", text, re.MULTILINE)
    if "framework:" not in text and not has_section:
        text += f"framework: {block.framework}\n"
    return text if "version:" in text else "version: 1\nkind: experiment\n" + text


YAML_BLOCKS = blocks("yaml")
IDS = [f"{block.document[:3]}-{block.number}" for block in YAML_BLOCKS]


def test_all_documents_are_here() -> None:
    assert len(list(SEEDS.glob("*.txt"))) == 5
    assert len(YAML_BLOCKS) == 28


@pytest.mark.parametrize("block", YAML_BLOCKS, ids=IDS)
def test_a_block_completed_to_a_file_gives_a_plan(block: Block) -> None:
    planned = plan(interpret([Source("seed.yml", completed(block))]).spec)
    roles = [replica.role for replica in planned.replicas]
    workers = re.search(r"n_workers: (\d+)", completed(block))
    servers = re.search(r"n_ps: (\d+)", completed(block))
    assert roles.count("master") == 1
    assert roles.count("worker") == (int(workers.group(1)) if workers else 0)
    assert roles.count("ps") == (int(servers.group(1)) if servers else 0)


@pytest.mark.parametrize("block", [b for b in YAML_BLOCKS if "n_workers: 7" in b.text], ids=lambda b: b.document[:3])
def test_the_large_example(block: Block) -> None:
    """A master, 7 workers of which the third has no GPU; but for PyTorch, 3 ps of which the first has more memory."""
    planned = plan(interpret([Source("seed.yml", completed(block))]).spec)
    gpus = {replica.name: replica.resources.gpu.limits for replica in planned.replicas}
    assert [name for name, count in gpus.items() if count] == ["master-0", *(f"worker-{i}" for i in (0, 1, 3, 4, 5, 6))]
    memory = {
        r.name: (r.resources.memory.requests, r.resources.memory.limits) for r in planned.replicas if r.role == "ps"
    }
    assert memory in ({}, {"ps-0": (512, 512), "ps-1": (256, 256), "ps-2": (256, 256)})


@pytest.mark.parametrize("block", YAML_BLOCKS, ids=IDS)
def test_a_block_pasted_raw_is_answered_with_what_to_do(block: Block) -> None:
    with pytest.raises(FileProblems) as raised:
        interpret([Source("pasted.yml", block.text)])
    first = block.text.split(":")[0].strip()
    messages = [problem.message for problem in raised.value.problems]
    if "..." in block.text.split("\n")[:-1] and block.text.strip().split("\n")[-1] != "...":
        assert messages == ["`...` stands here for something left out"]
    elif first in ("resources", "worker_resources", "default_worker"):
        homes = {
            "resources": "environment.resources",
            "worker_resources": "environment.replicas.worker",
            "default_worker": "environment.replicas.default_worker",
        }
        hint = next(problem.hint for problem in raised.value.problems if problem.path == first)
        assert hint.startswith(f"it belongs at {homes[first]}")
    else:
        assert "missing" in messages


def test_the_start_command_of_the_distributed_cifar_example() -> None:
    document = (SEEDS / next(path.name for path in SEEDS.glob("004*"))).read_text()
    (command,) = [match.group(2) for match in BLOCK.finditer(document) if "torch.distributed.launch" in match.group(2)]
    text = "framework: pytorch\nrun:\n  cmd: |\n" + textwrap.indent(command, "    ")
    text += "environment: {replicas: {n_workers: 2, n_trainers: 1, master: false}}\n"
    document_read = interpret([Source("cifar.yml", text)])
    assert document_read.spec.run.cmd == command.rstrip()
    assert document_read.warnings == ()


def test_the_create_command_of_vessl() -> None:
    import subprocess

    from tests.e2e.test_command_line import SHOAL

    (block,) = [block for block in blocks("bash") if "vessl experiment create" in block.text]
    words = block.text.replace("vessl", SHOAL, 1).split()
    result = subprocess.run([*words, "--command", "x", "--dry-run"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0
    assert "n_workers: 2" in result.stdout
