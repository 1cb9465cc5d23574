"""What a command imports is imported once, when it is invoked."""

import gc

from knowledgepulse_worker.terminal.lazy_command import imported


def test_the_garbage_collector_does_not_visit_what_was_imported(tmp_path, monkeypatch):
    (tmp_path / "a_command.py").write_text("held = [[]]")
    monkeypatch.syspath_prepend(tmp_path)

    held = imported("a_command:held")

    assert gc.isenabled()
    assert id(held) not in map(id, gc.get_objects())
    assert imported("a_command:held") is held
