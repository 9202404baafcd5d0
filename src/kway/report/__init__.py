"""Pictures: functions that return a matplotlib Figure. Nothing here opens a window or needs a display."""
