"""Says which releases of the Kubeflow operator could not be asked."""

from __future__ import annotations

import pytest

from tests.golden.test_kubeflow import OTHERS, RELEASES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not OTHERS.is_dir():
        told = f"judged by release {RELEASES[0]} only: ../shared/kubeflow-crds, with 1.7.0 and 1.9.4, is not here"
        terminalreporter.write_line(f"Kubeflow: {told}")
