"""The parts of a host: its clock, its memory of earlier results and its circuit breakers."""
