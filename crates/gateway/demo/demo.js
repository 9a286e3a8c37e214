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

// The messages after a position, and the position after them; without a position, the history of the channel.
async function ask(position, seconds) {
  const after = position ? `${position.next}-${position.epoch}` : "0";
  const response = await fetch(`${CHANNEL}?after=${after}&wait=${seconds}`, { cache: "no-store" });
  if (response.status === 204) {
    const field = name => response.headers.get(name);
    return { messages: [], next: Number(field("Channel-Next")), epoch: field("Channel-Epoch") };
  }
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

function showAll(way, messages) {
  for (const message of messages) show(way, message.data ?? "(bytes)");
}

// Frames have no ids, so this page counts them from the position where the socket begins.
async function listenBySocket(position = null, wait = SOONEST) {
  let next = Math.min(wait * 2, LATEST);
  const again = () => {
    say(ways.socket, "lost, connecting again", false);
    setTimeout(() => listenBySocket(position, next), wait);
  };
  try {
    const found = await ask(position, 0);
    showAll(ways.socket, found.messages);
    position = { next: found.next, epoch: found.epoch };
  } catch {
    return again();
  }
  const origin = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}`;
  const socket = new WebSocket(`${origin}${CHANNEL}?after=${position.next}-${position.epoch}`);
  socket.onopen = () => { next = SOONEST; ready(ways.socket); };
  socket.onmessage = event => {
    position.next += 1;
    show(ways.socket, typeof event.data === "string" ? event.data : "(bytes)");
  };
  socket.onclose = again;
}

function listenByEvents(after = "0") {
  const events = new EventSource(`${CHANNEL}?after=${encodeURIComponent(after)}`);
  events.onopen = () => ready(ways.events);
  events.onmessage = event => {
    after = event.lastEventId || after;
    show(ways.events, event.data);
  };
  events.onerror = () => {
    say(ways.events, "lost, connecting again", false);
    // After an answer that is no stream the browser does not try again.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => listenByEvents(after), LATEST);
  };
}

async function listenByPoll() {
  let position = null, wait = SOONEST;
  for (;;) {
    try {
      // The first answer comes at once, whether or not there is a history.
      const answer = ask(position, position ? 30 : 0);
      if (position) ready(ways.poll);
      const found = await answer;
      position = { next: found.next, epoch: found.epoch };
      wait = SOONEST;
      showAll(ways.poll, found.messages);
    } catch {
      say(ways.poll, "lost, asking again", false);
      await sleep(wait);
      wait = Math.min(wait * 2, LATEST);
    }
  }
}

async function publish(text) {
  const body = JSON.stringify({ from: me, text, at: performance.now(), sent: Date.now() });
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

listenBySocket();
listenByEvents();
listenByPoll();
