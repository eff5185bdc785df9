"""The server of a class: pages and API in this process, judging in the pool's."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import uvicorn

from tilewright.classroom.course import Course
from tilewright.classroom.store import Store
from tilewright.classroom.web.app import application
from tilewright.classroom.web.visit import Desk
from tilewright.classroom.workers import Pool
from tilewright.errors import TilewrightError
from tilewright.files import reason

LAST_SECONDS = 5  # for requests that are under way when the server ends
MOST_CONNECTIONS = 2000
PROXIES = "127.0.0.1,::1"  # whose word on who asks, and whether by https, is taken


class Server(uvicorn.Server):
    """uvicorn's, and streams that would never end by themselves end with it."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        desk: Desk = self.config.app.state.desk  # type: ignore[union-attr]
        desk.bell.close()
        await super().shutdown(sockets)


def serve(
    course: Course, store: Store, pool: Pool, host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Until Ctrl-C or SIGTERM. `ready` is told the address, when it answers there."""
    # Of what strangers send, only what the server itself makes of it is worth a line.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    with _listening(host, port) as listening:
        server = server_of(course, store)
        pool.start()
        try:
            taken = listening.getsockname()[1]  # port 0 takes any
            ready(f"http://{f'[{host}]' if ':' in host else host}:{taken}")
            server.run(sockets=[listening])
        finally:
            pool.stop()


def server_of(course: Course, store: Store) -> Server:
    config = uvicorn.Config(
        application(course, store), log_level="warning", access_log=False, lifespan="off",
        timeout_graceful_shutdown=LAST_SECONDS, limit_concurrency=MOST_CONNECTIONS,
        server_header=False, forwarded_allow_ips=PROXIES,
    )  # fmt: skip
    return Server(config)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise TilewrightError(f"cannot listen on {host} port {port}: {reason(error)}") from error
