"""P4Runtime 1.5 for the built-in switch: a gRPC server and what it stands on."""
