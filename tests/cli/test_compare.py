"""`kway compare`: the leaderboard only."""


def test_compare_leaves_the_test_rows_alone_and_writes_nothing(answer, cli, tmp_path):
    result = answer("compare", "iris", "--model", "softmax,centroid")
    assert {m["model"] for m in result["models"]} == {"softmax", "centroid"}
    assert "test" not in result
    assert not list(tmp_path.iterdir())
    assert "softmax" in cli("compare", "iris", "--model", "softmax")[1]
