"""The lab of seed 003: its data, its two machines, sample orders and the report."""
