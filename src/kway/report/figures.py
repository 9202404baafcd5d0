"""Every figure by name, in one place: `from kway.report import figures; figures.save(figures.temperature(f), "t.svg")`.

    choosing    cross_validation, leaderboard, history, cost, tradeoff
    judging     confusion_matrix, reliability, worst_mistakes, weight_templates, where_it_looks
    seeing      projected_regions, linear_boundaries, decision_lines, decision_regions, neighbor_regions, landmark_cells
    lessons     losses_by_margin, temperature, label_smoothing, softmax_and_sigmoid, same_distance
    output      save, to_svg, to_data_uri

Each takes plain arrays, records or fitted models and returns a matplotlib Figure; none opens a window.
"""

from kway.report.altered import same_distance
from kway.report.curves import cost, cross_validation, history, tradeoff
from kway.report.export import save, to_data_uri, to_svg
from kway.report.images import weight_templates, where_it_looks, worst_mistakes
from kway.report.lessons import label_smoothing, losses_by_margin, softmax_and_sigmoid, temperature
from kway.report.matrices import confusion_matrix
from kway.report.mistakes import Mistake
from kway.report.planes import Scene, decision_lines, linear_boundaries, projected_regions
from kway.report.regions import decision_regions, landmark_cells, neighbor_regions
from kway.report.scores import leaderboard, reliability

__all__ = [
    "Mistake",
    "Scene",
    "confusion_matrix",
    "cost",
    "cross_validation",
    "decision_lines",
    "decision_regions",
    "history",
    "label_smoothing",
    "landmark_cells",
    "leaderboard",
    "linear_boundaries",
    "losses_by_margin",
    "neighbor_regions",
    "projected_regions",
    "reliability",
    "same_distance",
    "save",
    "softmax_and_sigmoid",
    "temperature",
    "to_data_uri",
    "to_svg",
    "tradeoff",
    "weight_templates",
    "where_it_looks",
    "worst_mistakes",
]
