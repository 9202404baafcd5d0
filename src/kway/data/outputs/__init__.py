"""Files on their way out.

output_paths   where outputs may go, tested before the work begins
own_files      which files kway wrote itself, and may replace
atomic         files that are complete or absent
cache_folder   where lies what can be computed again
"""
