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
    assert code == 2
    assert "--device is 'abacus'; it may be cpu, cuda, auto" in said


def test_fewer_folds_than_asked_for_are_told(answer):
    few = answer("compare", "iris", "--model", "centroid", "--folds", 500)["notes"]
    assert "120 folds were made and not 500: there are no more rows to divide" in few
    assert not any("folds were made" in note for note in answer("compare", "iris", "--model", "centroid")["notes"])


def test_it_names_no_report_that_it_does_not_write(cli, tmp_path):
    lines = [",".join([*(f"{(i * j) % 7}.5" for j in range(1, 16)), "ab"[i % 2]]) for i in range(60)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join([*(f"c{j}" for j in range(15)), "kind"]), *lines]) + "\n")
    asked = ("wide.csv", "-t", "kind", "--model", "centroid")
    said = cli("compare", *asked)[2]
    assert "and 3 more: " in said
    assert "report" not in said
    assert "(the report lists all)" in cli("fit", *asked)[2]
