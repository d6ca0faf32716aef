"""A short part of what `python -m tests.torture.files run` tries for long."""

from tests.torture.files import damaged_files, killed_saves


def test_nobody_is_taken_in_by_a_damaged_file(tmp_path):
    report = damaged_files(tmp_path, 0, 6)
    assert not report.failures, report
    assert report.counts["refused"] >= 4
    assert sum(report.counts.values()) == 6


def test_a_killed_save_leaves_the_one_before_it(tmp_path):
    report = killed_saves(tmp_path, 0, 1)
    assert not report.failures, report
    assert report.counts["same"] == 1
