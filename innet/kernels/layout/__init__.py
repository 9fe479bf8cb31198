"""Where elements lie in sketches, filters, blocks and limbs: what all kernels follow."""
