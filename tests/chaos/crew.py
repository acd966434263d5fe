"""Workers under a supervisor: who ends is started again, as a service manager would do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.deployment import Deployment, Worker

_LOOK_S = 0.2
_RESTART_PAUSE_S = 0.5
_RESTART_MAY_HELP = 3
"""The exit code that asks for a supervisor: see docs/operations.md, "Exit codes"."""


@dataclass
class Post:
    name: str
    role: str | None
    env: Mapping[str, str]
    deployment: Deployment
    """With the release that the post's next worker is of."""
    worker: Worker
    frozen: bool = False
    ended: list[int] = field(default_factory=list)
    """Exit code of every worker that held the post."""


class Crew:
    """The workers of a deployment. Every other one runs without the optional extension.

    Args:
        deployment: whose workers they are.
        folder: where they may keep files.
    """

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment = deployment
        self._folder = folder
        self._numbers = itertools.count()
        self.posts: dict[str, Post] = {}
        self.unasked: list[str] = []
        """Ends that nobody caused and no restart mends: which post, its exit code, and the end of its log."""
        self.restarted = 0
        """How many workers ended of themselves, asking for a restart."""
        self._supervisor: asyncio.Task[None] | None = None

    def hire(self, name: str, role: str | None = None, deployment: Deployment | None = None, /, **env: str) -> Post:
        deployment = deployment or self.deployment
        if next(self._numbers) % 2:
            env = {"PYTHONPATH": str(self._without_extension())} | env
        post = Post(name=name, role=role, env=env, deployment=deployment, worker=_start(deployment, role, env))
        self.posts[name] = post
        return post

    def dismiss(self, name: str, *, gently: bool) -> None:
        post = self.posts.pop(name)
        post.worker.process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)

    def kill(self, post: Post) -> None:
        post.worker.kill()

    def terminate(self, post: Post) -> None:
        post.worker.process.send_signal(signal.SIGTERM)

    def freeze(self, post: Post) -> None:
        post.frozen = True
        post.worker.process.send_signal(signal.SIGSTOP)

    def thaw(self, post: Post) -> None:
        post.worker.process.send_signal(signal.SIGCONT)
        post.frozen = False

    def of_role(self, role: str | None) -> list[Post]:
        return [post for post in self.posts.values() if post.role == role]

    async def all_ready(self) -> bool:
        answers = [asyncio.to_thread(post.worker.get, "/readyz") for post in self.posts.values()]
        return all(status == 200 for status, _ in await asyncio.gather(*answers))

    def tails(self) -> str:
        return "\n".join(f"--- {post.name} ({post.worker.log})\n{post.worker.tail()}" for post in self.posts.values())

    async def __aenter__(self) -> Crew:
        self._supervisor = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self.deployment.stop_workers()

    def _without_extension(self) -> Path:
        folder = self._folder / "without_extension"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "assay_stream_native.py").write_text("raise ImportError\n")
        return folder

    async def _supervise(self) -> None:
        ended_s: dict[str, float] = {}
        while True:
            for post in list(self.posts.values()):
                code = post.worker.process.poll()
                if code is None:
                    continue
                if post.name not in ended_s:
                    ended_s[post.name] = time.monotonic()
                    post.ended.append(code)
                    if code == _RESTART_MAY_HELP:
                        self.restarted += 1
                        print(f"chaos:     {post.name} ended: {post.worker.reason()}", flush=True)
                    elif code not in (0, -signal.SIGKILL, -signal.SIGTERM):
                        # SIGTERM is sent by faults only, and ends one that has only just begun to start at once.
                        self.unasked.append(f"{post.name} ended with {code}:\n{post.worker.tail()}")
                elif time.monotonic() - ended_s[post.name] > _RESTART_PAUSE_S:
                    del ended_s[post.name]
                    post.worker = _start(post.deployment, post.role, post.env)
            await asyncio.sleep(_LOOK_S)


def _start(deployment: Deployment, role: str | None, env: Mapping[str, str]) -> Worker:
    # Workers start often: compiling their modules once is enough.
    compiled = {"PYTHONDONTWRITEBYTECODE": ""}
    return deployment.start_worker(*(["--role", role] if role else []), **(compiled | dict(env)))
