"""What holds for every request: headers that forbid, and a body that ends where it must."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing comes from elsewhere, nothing goes elsewhere, and no script stands in a page.
POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"),
        *(
            "img-src 'self' data:",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ),
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
HTTPS_ONLY = "max-age=31536000"


class Guards:
    """Around the whole application."""

    def __init__(self, app: ASGIApp, largest_body: int) -> None:
        self.app, self.largest = app, largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read = 0
        announced = Headers(scope=scope).get("content-length", "0")

        async def bounded() -> Message:
            """The body as it comes. What is too much is not taken, whatever was announced."""
            nonlocal read
            if announced.isdecimal() and int(announced[:20]) > self.largest:
                raise self._too_large()
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.largest:
                raise self._too_large()
            return message

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers["Strict-Transport-Security"] = HTTPS_ONLY
            await send(message)

        await self.app(scope, bounded, guarded)

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"a request may have {self.largest:,} bytes, and no more")
