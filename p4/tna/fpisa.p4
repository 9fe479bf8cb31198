// Sums of float32, as ../fpisa.p4 makes them, in a form that p4c's compiler for a Tofino 1 takes (architecture
// TNA), by FPISA's approximate addition, which is what it can do: include/floats.p4. Chunks, members and results
// are those of slots.p4. It was compiled, and has not run on hardware: docs/tofino.md.
//
// Other than ../fpisa.p4: float32 only, neither integers nor bf16; raw Ethernet only; no checksum.
//
// Compile-time parameters: as in slots.p4.

#define FLOATS
#include "slots.p4"
