# SPDX-License-Identifier: GPL-2.0-or-later
"""The program that writes the corpus still runs: its seeds are made by today's classes."""

from tests.parser_fuzz import catalogue, seed_corpus


def test_every_seed_of_the_corpus_can_be_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(seed_corpus, "CORPUS", tmp_path)
    seed_corpus.main()
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {str(path.relative_to(catalogue.CORPUS)) for path in catalogue.CORPUS.rglob("*")}
    assert written
    assert written - kept == set()
