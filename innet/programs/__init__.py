"""The compiled P4 programs, and their compilation."""

from innet.programs.catalog import (
    FOLDERS,
    P4INFO,
    CompiledProgram,
    Dimensions,
    available,
    catalogue,
    examples,
    find,
    find_header_only,
    p4_directory,
)
from innet.programs.compile import (
    compile_folder,
    compile_p4,
    find_p4c,
    p4c_version,
    source_hashes,
)

__all__ = [
    "FOLDERS",
    "P4INFO",
    "CompiledProgram",
    "Dimensions",
    "available",
    "catalogue",
    "compile_folder",
    "compile_p4",
    "examples",
    "find",
    "find_header_only",
    "find_p4c",
    "p4_directory",
    "p4c_version",
    "source_hashes",
]
