"""Pictures: functions that return a matplotlib Figure. Nothing here opens a window or needs a display.

figures       every figure by name, in one place        style     the look of all of them
curves        scores over a setting, losses, costs      scores    leaderboard, reliability      matrices   confusion
planes        linear boundaries, projections            regions   what a classifier answers everywhere, cells on the map
images        weights and mistakes as pictures          altered   images at the same distance   lessons    one idea each
page          the report of a job: pictures (which ones its result allows), sketches (as plain data), drawing (made
              figures of), picture_workers (on two cores), slices (answers on a plane), mistakes (the surest wrong rows)
export        figures as files and inside pages         columns   how every column was read
"""
