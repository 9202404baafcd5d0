"""Model files, altered by hand and by chance, and what kway makes of them.

    python -m file_attack 100000 --seed 1        (in tests/attack; `make attack N=100000` does it)

subjects.py  a saved model of every kind      changes.py   one file -> another, signed again where it was altered inside
child.py     loads and predicts, under limits of memory and time      campaign.py   deals files to children and counts

Whatever is done to a file, it is refused by a ModelFileError, or the model answers, or says why not (a kway error): no
other error, no crash, no file that takes all the memory or hangs.
"""
