"""Figures and the HTML report of a job. A figure is a function that returns a matplotlib Figure and opens no window.

charts        cross-validation, learning, leaderboard, reliability, trade-offs
confusion     the confusion matrix
mistakes      the wrong predictions of highest confidence
model_views   weights as images, where a model looks, decision regions
shapes        how the answer changes with one column
style         the look of all figures, and figures as files
page          the report of a job as one HTML page
figures       which figures the report shows, with their titles and texts: one function each
columns       how each column was read

    from kway import report
    report.save(report.cross_validation(k, scores), "folds.svg")
"""

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Mistake": "mistakes",
    "confusion_matrix": "confusion",
    "cross_validation": "charts",
    "decision_regions": "model_views",
    "history": "charts",
    "leaderboard": "charts",
    "projected_regions": "model_views",
    "reliability": "charts",
    "save": "style",
    "to_data_uri": "style",
    "to_svg": "style",
    "tradeoff": "charts",
    "weight_templates": "model_views",
    "where_it_looks": "model_views",
    "worst_mistakes": "mistakes",
}
__all__ = [
    "Mistake",
    "confusion_matrix",
    "cross_validation",
    "decision_regions",
    "history",
    "leaderboard",
    "projected_regions",
    "reliability",
    "save",
    "to_data_uri",
    "to_svg",
    "tradeoff",
    "weight_templates",
    "where_it_looks",
    "worst_mistakes",
]
if TYPE_CHECKING:
    from kway.report.charts import cross_validation, history, leaderboard, reliability, tradeoff
    from kway.report.confusion import confusion_matrix
    from kway.report.mistakes import Mistake, worst_mistakes
    from kway.report.model_views import decision_regions, projected_regions, weight_templates, where_it_looks
    from kway.report.style import save, to_data_uri, to_svg

__getattr__, __dir__ = lazy_names(__name__, _HOME)
