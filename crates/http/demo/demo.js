"use strict";

const CHANNEL = "/demo/chat";
const MOST = 50;

const at = id => document.getElementById(id);
const view = id => ({ state: at(id).querySelector(".state"), list: at(id).querySelector("ol"), count: 0 });

function say(way, text, isOpen) {
  way.state.textContent = text;
  way.state.classList.toggle("open", isOpen);
}

function ready(way) {
  say(way, way.count === 1 ? "1 message" : `${way.count} messages`, true);
}

// A message of this page is JSON; another publisher may send anything.
function read(data) {
  try {
    const message = JSON.parse(data);
    if (message && typeof message.text === "string") return message;
  } catch { /* It is shown as it is. */ }
  return { text: String(data) };
}

function show(way, data) {
  const message = read(data);
  const sent = Number.isFinite(message.sent) ? new Date(message.sent) : new Date();
  const line = document.createElement("li");
  const text = line.appendChild(document.createElement("span"));
  const when = line.appendChild(document.createElement("small"));
  text.textContent = message.text;
  const delay = message.from === me ? performance.now() - message.at : NaN;
  when.textContent = delay >= 0 ? `${delay.toFixed(1)} ms`
    : sent.toLocaleTimeString([], { hour12: false });
  way.list.prepend(line);
  while (way.list.children.length > MOST) way.list.lastChild.remove();
  way.count += 1;
  ready(way);
}

// The name of this page, which tells its own messages: it knows how long they were on their way.
const me = Array.from(crypto.getRandomValues(new Uint8Array(8)), byte => byte.toString(16).padStart(2, "0")).join("");

// One subscription for each transport; a page that only wants the messages lets the client choose.
const rooms = [["socket", "websocket"], ["events", "sse"], ["poll", "long-poll"]].map(([id, transport]) => {
  const way = view(id);
  return superpoll(CHANNEL, ({ data }) => show(way, typeof data === "string" ? data : "(bytes)"), {
    transports: [transport],
    after: "0",
    onstate: state => {
      if (state === "open") ready(way);
      else say(way, state === "waiting" ? "lost, connecting again" : "connecting", false);
    },
  });
});

async function publish(text) {
  const body = JSON.stringify({ from: me, text, at: performance.now(), sent: Date.now() });
  try {
    await rooms[0].publish(body);
    at("outcome").textContent = "";
    return true;
  } catch (error) {
    at("outcome").textContent = error.status ? `The server has refused it: ${error.message}` : "The server cannot be reached.";
    return false;
  }
}

at("send").addEventListener("submit", async event => {
  event.preventDefault();
  const input = at("text");
  const text = input.value.trim();
  if (text && await publish(text)) input.value = "";
});

let ticking = null;
at("tick").addEventListener("click", event => {
  const button = event.currentTarget;
  let count = 0;
  if (ticking === null) {
    ticking = setInterval(() => publish(`tick ${count += 1}`), 1000);
  } else {
    clearInterval(ticking);
    ticking = null;
  }
  button.setAttribute("aria-pressed", String(ticking !== null));
});

for (const code of document.querySelectorAll("[data-origin]")) {
  code.textContent = code.textContent.replaceAll("ORIGIN", location.origin);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const code = at(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // A page that does not come from this machine or by TLS has no clipboard.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected, press Ctrl+C";
    }
  });
}
