"""`kway compare`: the leaderboard only."""


def test_compare_leaves_the_test_rows_alone_and_writes_nothing(answer, cli, tmp_path):
    result = answer("compare", "iris", "--model", "softmax,centroid")
    assert {m["model"] for m in result["models"]} == {"softmax", "centroid"}
    assert "test" not in result
    assert not list(tmp_path.iterdir())
    assert "softmax" in cli("compare", "iris", "--model", "softmax")[1]


def test_compare_asks_for_a_device_as_fit_does(answer, cli):
    result = answer("compare", "iris", "--model", "softmax,centroid", "--device", "auto")
    assert {m["model"] for m in result["models"]} == {"softmax", "centroid"}
    code, _, said = cli("compare", "iris", "--model", "softmax", "--device", "abacus")
    assert code == 1
    assert "device must be one of 'cpu', 'cuda', 'auto', got 'abacus'" in said
