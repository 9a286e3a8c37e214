"use strict";

const CHANNEL = "/demo/chat";
const MOST = 50;
const SOONEST = 500, LATEST = 15000;

const at = id => document.getElementById(id);
const sleep = time => new Promise(done => setTimeout(done, time));
const view = id => ({ state: at(id).querySelector(".state"), list: at(id).querySelector("ol"), count: 0 });
const ways = { socket: view("socket"), events: view("events"), poll: view("poll") };

function say(way, text, isOpen) {
  way.state.textContent = text;
  way.state.classList.toggle("open", isOpen);
}

function ready(way) {
  say(way, way.count === 1 ? "1 message" : `${way.count} messages`, true);
}

// A message of this page is JSON; others may have published anything.
function read(data) {
  try {
    const message = JSON.parse(data);
    if (message && typeof message.text === "string") return message;
  } catch { /* It is shown as it is. */ }
  return { text: String(data) };
}

function show(way, data) {
  const message = read(data);
  const line = document.createElement("li");
  const text = line.appendChild(document.createElement("span"));
  const when = line.appendChild(document.createElement("small"));
  text.textContent = message.text;
  const delay = message.from === me ? performance.now() - message.at : NaN;
  when.textContent = delay >= 0 ? `${delay.toFixed(1)} ms`
    : new Date().toLocaleTimeString([], { hour12: false });
  way.list.prepend(line);
  while (way.list.children.length > MOST) way.list.lastChild.remove();
  way.count += 1;
  ready(way);
}

// Who this page is, to tell how long its own messages were on their way.
const me = Array.from(crypto.getRandomValues(new Uint8Array(8)), byte => byte.toString(16).padStart(2, "0")).join("");

function listenBySocket(wait = SOONEST) {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${CHANNEL}`);
  let next = Math.min(wait * 2, LATEST);
  socket.onopen = () => { next = SOONEST; ready(ways.socket); };
  socket.onmessage = event => { if (typeof event.data === "string") show(ways.socket, event.data); };
  socket.onclose = () => {
    say(ways.socket, "lost, connecting again", false);
    setTimeout(() => listenBySocket(next), wait);
  };
}

function listenByEvents() {
  const events = new EventSource(CHANNEL);
  events.onopen = () => ready(ways.events);
  events.onmessage = event => show(ways.events, event.data);
  events.onerror = () => {
    say(ways.events, "lost, connecting again", false);
    // After an answer that is no stream the browser does not try again.
    if (events.readyState === EventSource.CLOSED) setTimeout(listenByEvents, LATEST);
  };
}

async function listenByPoll() {
  let after = null, wait = SOONEST;
  for (;;) {
    try {
      const query = after === null ? "wait=30" : `after=${encodeURIComponent(after)}&wait=30`;
      const answer = fetch(`${CHANNEL}?${query}`, { cache: "no-store" });
      ready(ways.poll);
      const response = await answer;
      if (response.status === 204) continue;
      if (!response.ok) throw new Error(response.statusText);
      const found = await response.json();
      after = found.next;
      wait = SOONEST;
      for (const message of found.messages) show(ways.poll, message.data ?? "(bytes)");
    } catch {
      say(ways.poll, "lost, asking again", false);
      await sleep(wait);
      wait = Math.min(wait * 2, LATEST);
    }
  }
}

async function publish(text) {
  const body = JSON.stringify({ from: me, text, at: performance.now() });
  try {
    const response = await fetch(CHANNEL, { method: "POST", body });
    at("outcome").textContent = response.ok ? "" : `The server has refused it: ${response.status} ${response.statusText}`;
    return response.ok;
  } catch {
    at("outcome").textContent = "The server cannot be reached.";
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

listenBySocket();
listenByEvents();
listenByPoll();
