"""The built-in switch in the place of BMv2's simple_switch and simple_switch_grpc."""
