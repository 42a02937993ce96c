"""A count as a page, and as what another count goes on from."""

import pytest

from tests.tools.toy import CAUGHT, SURVIVES, begin
from tools.faults import DRAWN, Fault, SeedError
from tools.verdicts import Verdict, write_page


def test_a_page_has_the_rooms_the_survivors_and_how_it_was_made():
    drawn, far = DRAWN[0], Fault("engine/x.py", "a", "b", "far away")
    count = begin([CAUGHT, SURVIVES, drawn, far], equivalent={"far away": "nobody can"}, unseen={})
    assert [fault.what for fault in count.todo] == [CAUGHT.what, SURVIVES.what, drawn.what]
    count.verdicts = {CAUGHT.what: Verdict(CAUGHT, "a test", 1.0), SURVIVES.what: Verdict(SURVIVES, None, 239.0)}
    count.seconds = 10.0
    assert count.show_progress(jobs=2) == "2 of 3: 1 caught, 1 not, about 1 min left"
    page = write_page(count)
    assert "1 of 3 caught (33.3%).\n1 are not judged to the end yet." in page
    assert "## Not judged to the end\n\n- " in page
    assert "| room | 2 | 0 | 1 | 1 |\n" in page
    assert f"| {drawn.room} | 0 | 1 | 0 | 0 |\n" in page
    assert "| all | 2 | 1 | 1 | 1 |\n" in page
    assert "## Survived\n\n- `room/double.py`: nobody looks (no end within the limit)\n" in page
    assert "- `engine/x.py`: far away: nobody can\n" in page
    assert "    python -m tools.seed_faults\n\nCommit abc, 2026-01-31, 10 s. a machine, 2 cores.\n" in page


def test_a_count_goes_on_where_it_was_broken_off(tmp_path):
    count = begin([CAUGHT, SURVIVES])
    count.verdicts[CAUGHT.what], count.seconds = Verdict(CAUGHT, "a test", 1.0), 5.0
    count.write(tmp_path / "faults.md")
    again = begin([CAUGHT, SURVIVES])
    again.go_on(tmp_path / "faults.json")
    assert again.todo == [SURVIVES]
    assert again.verdicts == count.verdicts
    assert again.seconds == 5.0
    with pytest.raises(SeedError, match=r"is of commit abc, here is xyz: count anew"):
        begin([CAUGHT], commit="xyz").go_on(tmp_path / "faults.json")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(SeedError, match=r"bad.json holds no verdicts to go on from \(TypeError\)"):
        begin([CAUGHT]).go_on(tmp_path / "bad.json")


def test_what_was_caught_at_another_commit_may_be_taken_over(tmp_path):
    other = Fault("room/other.py", "a", "b", "another file")
    count = begin([CAUGHT, SURVIVES, other])
    for fault, test in ((CAUGHT, "a test"), (SURVIVES, ""), (other, "a test")):
        count.verdicts[fault.what] = Verdict(fault, test, 1.0)
    count.write(tmp_path / "faults.md")
    again = begin([CAUGHT, SURVIVES, other], commit="xyz")
    again.go_on(tmp_path / "faults.json", lambda commit: {other.path.as_posix()} if commit == "abc" else set())
    assert again.todo == [SURVIVES, other]
    assert "1 were caught at abc, in files that have not changed since." in write_page(again)
