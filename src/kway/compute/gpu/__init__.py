"""Work on a GPU through torch: the only place that imports it, and only when a device other than "cpu" is asked for.

device.py    which device ("cpu" | "cuda" | "auto"), arrays to it and back, its memory
"""
