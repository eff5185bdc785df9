// Pages are whole without this. With it, what is marked `data-live` is fetched anew whenever the
// server says that it has changed; the server alone makes HTML.
"use strict";

const PAUSE = 1000; // ms between two looks
const RETRY = 3000; // ms until a stream that was refused is asked for again
let source = null;
let looking = false;
let again = false;

async function look() {
  if (looking) {
    again = true;
    return;
  }
  looking = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok && !answer.redirected) {
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-part]")) {
        const fresh = made.getElementById(part.id);
        if (fresh) part.replaceWith(document.adoptNode(fresh));
      }
      if (!document.querySelector("[data-live]")) source.close();
    }
  } catch (error) {
    again = true; // the server is away: the stream comes back, and we look again
  }
  setTimeout(() => {
    looking = false;
    if (again) {
      again = false;
      look();
    }
  }, PAUSE);
}

function listen() {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  source = new EventSource(live.dataset.live);
  source.onmessage = look;
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, RETRY);
  };
}

window.addEventListener("pagehide", () => source && source.close());
listen();
