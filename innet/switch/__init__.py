"""The programmable switch model: BMv2 JSON in, packets through."""
