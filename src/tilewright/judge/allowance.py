"""What a worker may take of the machine."""

from __future__ import annotations

from dataclasses import dataclass

GIBIBYTE = 2**30


@dataclass(frozen=True)
class Allowance:
    """Limits of a worker. `memory_bytes` holds where kernels run on the CPU; a GPU has its own.

    `seconds` are for each launch, `compile_seconds` for each compilation and the start. `processes`
    are those that link PoCL's kernels.
    """

    seconds: float = 10.0
    compile_seconds: float = 60.0
    memory_bytes: int = 4 * GIBIBYTE
    file_bytes: int = 64 * 2**20
    folder_bytes: int = GIBIBYTE
    folder_files: int = 100_000
    open_files: int = 1024
    threads: int = 512
    processes: int = 8
    cpu_seconds: int = 3600
