// A server of one channel for node: WebSocket by the package ws, server-sent events and long-poll
// by node's own http. Arguments: the port, and the folder of ws.
"use strict";

const http = require("http");
const [port, folder] = process.argv.slice(2);
const { WebSocketServer } = require(folder);

const streams = new Set();
let polls = [];
let last = { id: 0, text: "" };

function publish(text) {
    last = { id: last.id + 1, text };
    for (const socket of sockets.clients) {
        socket.send(text);
    }
    const event = `id: ${last.id}\ndata: ${text}\n\n`;
    for (const stream of streams) {
        stream.write(event);
    }
    const waiting = polls;
    polls = [];
    for (const poll of waiting) {
        answer(poll);
    }
}

// The publisher waits until all have the last message, so one message is history enough.
function answer(response) {
    response.writeHead(200, {
        "content-type": "text/plain",
        "content-length": Buffer.byteLength(last.text),
        next: last.id,
    });
    response.end(last.text);
}

const server = http.createServer((request, response) => {
    const url = new URL(request.url, "http://localhost");
    if (request.method === "POST") {
        let text = "";
        request.setEncoding("utf8");
        request.on("data", (part) => { text += part; });
        request.on("end", () => {
            publish(text);
            response.writeHead(201, { "content-length": 0 });
            response.end();
        });
    } else if (request.headers.accept === "text/event-stream") {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
        streams.add(response);
        response.on("close", () => streams.delete(response));
    } else if (url.searchParams.has("after") && Number(url.searchParams.get("after")) < last.id) {
        answer(response);
    } else {
        polls.push(response);
    }
});
// Silent connections stay.
server.keepAliveTimeout = 0;
server.requestTimeout = 0;
server.headersTimeout = 0;
const sockets = new WebSocketServer({ server });
server.listen({ host: "127.0.0.1", port: Number(port), backlog: 4096 });
