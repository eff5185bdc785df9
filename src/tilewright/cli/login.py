"""Log in to a class: keeps a token, so that `tilewright submit` can hand in under your name."""

from __future__ import annotations

import argparse
import sys

from tilewright.errors import TilewrightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="where the class is served")
    parser.add_argument("--login", metavar="LOGIN", help="who you are there (default: is asked)")
    parser.add_argument(
        "--name",
        default="",
        metavar="NAME",
        help="your name, if you are new and have an invite code",
    )


def main(arguments: argparse.Namespace) -> int:
    import platform

    from tilewright.classroom.client import Client, Tokens, in_the_clear
    from tilewright.terminal import printable, say_once

    client, tokens = Client(arguments.url), Tokens()
    if in_the_clear(client.url):
        say_once(f"{client.url} is not encrypted: whoever is on the way can read your code")
    login = arguments.login or _asked("login: ", secret=False)
    code = _asked("code: ", secret=True)
    found = client.log_in(login, code, arguments.name, f"tilewright on {platform.node()}")
    tokens.keep(client.url, str(found["token"]))
    print(printable(f"{found['class']}: you are {found['name']} ({found['login']})"))
    if found.get("code"):
        print(printable(f"your code to log in from now on, shown this once: {found['code']}"))
    print(f"the token is kept in {tokens.path}")
    return 0


def _asked(question: str, secret: bool) -> str:
    """From the terminal; a line of standard input where there is none. Never from the command
    line, which others on the machine can read."""
    if sys.stdin.isatty():
        from getpass import getpass

        answer = getpass(question) if secret else input(question)
    else:
        answer = sys.stdin.readline()
    if not answer.strip():
        raise TilewrightError(f"no {question.rstrip(': ')} was given")
    return answer.strip()
