"""Data on its way in: the gate, labels, tables, embedded and synthetic sets."""
