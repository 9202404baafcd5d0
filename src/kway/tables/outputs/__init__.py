"""Files on their way out.

places   where outputs may go, checked before the work begins; which files kway wrote itself and may replace
atomic   files that are complete or absent; the folder of what can be computed again
"""
