// Superpoll's client for pages: the messages of a channel, each once and in order.
//
//   const room = superpoll("/rooms/42", message => console.log(message.data));
//
// It connects again when a connection is lost, asks for the messages after the last one, and drops
// those that come twice. It ends with close(), or when the server refuses it (401, 403). The
// options are in docs/channels.md.
(() => {
  "use strict";

  // The longest wait before the first try to connect again, and before later ones.
  const SOON = 1000, LATE = 30000;

  const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));

  function superpoll(url, onmessage, options = {}) {
    const { token, transports = ["websocket", "sse", "long-poll"], onstate, onmissed, onpresence } = options;
    const channel = new URL(url, globalThis.location?.href);
    // The position of the last message, or before the first.
    let { after } = options, epoch, last;
    let isClosed = false, attempt, wake, wait = SOON;
    // Who is there, the list as the server had it last, and the changes while it is asked for.
    const members = new Map();
    let list, changes;

    // An error of the page is not one of the connection.
    const call = (callback, ...values) => {
      try {
        callback?.(...values);
      } catch (error) {
        queueMicrotask(() => { throw error; });
      }
    };

    const address = fields => {
      const url = new URL(channel);
      for (const [name, value] of Object.entries(fields)) if (value != null) url.searchParams.set(name, value);
      return url;
    };

    const ask = async (key, fields, init, headers) => {
      if (key) headers = { ...headers, authorization: `Bearer ${key}` };
      const response = await fetch(address(fields), { cache: "no-store", ...init, headers });
      if (response.ok) return response;
      const { status, statusText } = response, after = response.headers.get("retry-after");
      // Seconds or a date.
      const rest = Math.max(isNaN(after) ? Date.parse(after) - Date.now() : after * 1000, 0) || 0;
      throw Object.assign(new Error(`${status} ${statusText}`), { status, rest });
    };

    const move = (id, of) => {
      if (isClosed) return;
      [last, epoch] = [id, of];
      after = `${id}-${of}`;
    };

    const change = ({ id, epoch, event, data }) => {
      if (epoch === list?.epoch && id <= list.last) return;
      const { user, info, users } = JSON.parse(data);
      if (event === "join") members.set(user, info);
      else members.delete(user);
      call(onpresence, { type: event, user, info, users }, members);
    };

    // Asks who is there. Changes count from the first page on: the later one of a user counts.
    const askMembers = async () => {
      const mine = changes = [], all = [];
      let first, answer;
      try {
        const key = await token?.();
        do {
          answer = await (await ask(key, { info: 1, members: 1, after_user: answer?.after_user })).json();
          first ??= answer;
          all.push(...answer.members);
        } while (answer.after_user !== undefined);
      } catch {
        // Changes tell of the users all the same.
        first = undefined;
      }
      if (isClosed || mine !== changes) return;
      changes = undefined;
      if (first) {
        list = first;
        members.clear();
        for (const { user, info } of all) members.set(user, info);
        call(onpresence, { type: "list", users: members.size }, members);
      }
      mine.forEach(change);
    };

    // Takes a message; without data it only tells the position.
    const take = message => {
      if (isClosed) return;
      const { id, data, base64 } = message;
      if (message.missed) {
        call(onmissed);
        if (onpresence) askMembers();
      }
      if (id !== undefined) {
        // Ids count from 1 again when the epoch is another.
        if (message.epoch === epoch && id <= last) return;
        move(id, message.epoch);
      }
      if ((data ?? base64) === undefined) return;
      wait = SOON;
      if (onpresence && (message.event === "join" || message.event === "leave")) {
        if (changes) changes.push(message);
        else change(message);
        return;
      }
      call(onmessage, base64 === undefined ? message : { ...message, base64: undefined, data: bytes(base64) });
    };

    // Each ends with an error.
    const ways = {
      "websocket": (signal, key, open) => new Promise((_, fail) => {
        const url = address({ after, token: key });
        url.protocol = url.protocol.replace("http", "ws");
        const socket = new WebSocket(url, "superpoll.v1");
        socket.onopen = open;
        socket.onmessage = event => signal.aborted || take(JSON.parse(event.data));
        socket.onclose = event => fail(new Error(`WebSocket closed: ${event.code} ${event.reason}`));
        signal.onabort = () => { socket.close(); fail(signal.reason); };
      }),

      "sse": async (signal, key, open) => {
        const response = await ask(key, { after }, { signal }, { accept: "text/event-stream" });
        const reader = response.body.getReader(), decoder = new TextDecoder();
        const at = id => {
          const [number, of] = id?.split("-") ?? [];
          return { id: number && Number(number), epoch: of };
        };
        take(at(response.headers.get("last-event-id")));
        open();
        for (let rest = "", event = {}; ;) {
          const { done, value } = await reader.read();
          if (done || signal.aborted) throw new Error("the stream ended");
          const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
          rest = lines.pop();
          for (const line of lines) {
            const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
            if (line === "") {
              const { event: kind, data, id } = event, place = at(id);
              take(kind === "missed" ? { ...place, missed: true }
                : kind === "base64" ? { ...place, base64: data } : { ...place, event: kind, data });
              event = {};
            } else if (name === "data" && event.data !== undefined) {
              event.data += "\n" + value;
            } else {
              event[name] = value;
            }
          }
        }
      },

      "long-poll": async (signal, key, open) => {
        // The first answer comes at once.
        for (let wait = 0; ; wait = undefined) {
          const response = await ask(key, { after, wait }, { signal });
          const { headers, status } = response;
          if (wait === 0) open();
          if (status === 204) {
            if (epoch === undefined) move(Number(headers.get("channel-next")), headers.get("channel-epoch"));
            continue;
          }
          const { messages, next, epoch: of, missed } = await response.json();
          if (signal.aborted) throw signal.reason;
          if (missed) take({ missed });
          for (const message of messages) take({ ...message, epoch: of });
          move(next, of);
        }
      },
    };

    const end = (name, about) => {
      if (isClosed) return;
      isClosed = true;
      globalThis.removeEventListener?.("online", online);
      attempt?.abort();
      wake?.();
      call(onstate, name, about);
    };

    const run = async () => {
      let which = 0, failures = 0, refusals = 0;
      while (!isClosed) {
        const transport = transports[which];
        const state = (name, error) => call(onstate, name, { transport, error });
        attempt = new AbortController();
        let key;
        try {
          state("connecting");
          key = await token?.();
          await ways[transport](attempt.signal, key, () => {
            failures = -1;
            refusals = 0;
            state("open");
            if (onpresence) askMembers();
          });
        } catch (error) {
          attempt.abort();
          if (isClosed) break;
          if (failures < 0) {
            failures = 0;
          } else if (!error?.status) {
            // Is it the server or the transport? A WebSocket does not tell.
            const signal = AbortSignal.timeout(5000);
            const found = await ask(key, {}, { method: "HEAD", signal }).catch(refusal => refusal);
            // A channel may be made by its first subscriber.
            if (found.ok || found.status === 404) failures += 1;
            else if (found.status) error = found;
          }
          if (failures > 1) {
            which = (which + 1) % transports.length;
            failures = 0;
          }
          if (isClosed) break;
          const { status, rest = 0 } = error ?? {};
          // The token may have expired a moment ago: another one is tried once.
          if (status === 403 || status === 401 && (!token || (refusals += 1) > 1)) {
            end("refused", { transport, error });
            break;
          }
          state("waiting", error);
          await new Promise(done => {
            wake = done;
            // A longer time overflows.
            setTimeout(done, Math.min(2 ** 31 - 1, rest + Math.random() * wait));
          });
          wait = Math.min(2 * wait, LATE);
        }
      }
    };

    // The network is back.
    const online = () => {
      wait = SOON;
      attempt?.abort();
      wake?.();
    };
    globalThis.addEventListener?.("online", online);
    run();

    return {
      /** The users who are there, each with what is known of it; kept with `onpresence`. */
      members,

      /** Where to begin to go on from here. */
      get position() { return after; },

      /** Publishes text or bytes. A repeated call with the same key is one message. */
      async publish(data, { key, event, ttl } = {}) {
        const headers = {};
        if (key) headers["idempotency-key"] = key;
        if (event) headers["channel-event"] = event;
        if (ttl) headers["channel-ttl"] = ttl;
        const response = await ask(await token?.(), {}, { method: "POST", body: data }, headers);
        return response.json();
      },

      close() { end("closed", {}); },
    };
  }

  globalThis.superpoll = superpoll;
})();
