// Pages are whole without this. With it, what is marked `data-live` is fetched anew whenever the
// server says that it has changed; the server alone makes HTML.
"use strict";

const RETRY = 3000; // ms until a stream that was refused is asked for again
let source = null;
let waiting = false; // a look is on its way
let again = false; // and something has changed since it began

// Soon, but not all who watch at the same moment; the server says how long they may take.
function changed() {
  again = true;
  if (waiting) return;
  waiting = true;
  setTimeout(look, Math.random() * 500 * Number(document.body.dataset.pause));
}

async function look() {
  again = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok && !answer.redirected) {
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-part]")) {
        const fresh = made.getElementById(part.id);
        if (fresh && fresh.outerHTML !== part.outerHTML) part.replaceWith(document.adoptNode(fresh));
      }
      document.body.dataset.pause = made.body.dataset.pause;
      if (!document.querySelector("[data-live]")) source.close();
    }
  } catch (error) {
    again = true; // the server is away: the stream comes back, and we look again
  }
  setTimeout(() => {
    waiting = false;
    if (again) changed();
  }, 500 * Number(document.body.dataset.pause));
}

function listen() {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  source = new EventSource(live.dataset.live);
  source.onmessage = changed;
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, RETRY);
  };
}

window.addEventListener("pagehide", () => source && source.close());
listen();
