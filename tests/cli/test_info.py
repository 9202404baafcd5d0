"""`kway info`: what a model file holds."""


def test_info(iris, answer, cli):
    held = answer("info", "model.kway", "--verify")
    assert held["class_name"] == "FeaturedClassifier"
    assert held["verified"] is True
    assert (held["n_classes"], held["n_features"]) == (3, 4)
    assert held["notes"]["target"] == "species"
    assert "content verified" in cli("info", "model.kway", "--verify")[1]


def test_info_finds_an_altered_payload(iris, cli, tmp_path):
    content = bytearray((tmp_path / "model.kway").read_bytes())
    content[-1] ^= 1
    (tmp_path / "altered.kway").write_bytes(content)
    assert cli("info", "altered.kway")[0] == 0
    code, out, err = cli("info", "altered.kway", "--verify", "--json")
    assert (code, out) == (1, "")
    assert err.startswith("error: altered.kway was altered")
