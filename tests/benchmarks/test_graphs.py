"""The benchmark of graphs runs, on small ones."""

from benchmarks import graphs


def test_both_kinds_of_graphs_are_measured(capsys):
    graphs.main(["--edges", "300", "--repeat", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0].rpartition(", ")[2] for line in lines if "nodes" in line] == [
        "at random",
        "few with very many",
    ]
    assert sum(line.startswith("  regard  forward") for line in lines) == 2
