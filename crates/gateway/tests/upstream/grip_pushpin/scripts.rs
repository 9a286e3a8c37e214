//! The scripts.

use tungstenite::Message;

use super::script::Step::{
    Again, Ask, AskOld, Asked, AskedIf, Beat, Close, Control, End, Further, Head, Held, Leave,
    Left, Messages, Open, Publish, Reply, Say, Text,
};
use super::script::{Answer, FEATURES, Script, Step, events, ok, status};

fn script(
    name: &'static str,
    answers: Vec<(&'static str, Vec<Answer>)>,
    steps: Vec<Step>,
) -> Script {
    Script { name, answers, steps }
}

/// Returns all scripts, those that wait for seconds first.
pub(super) fn all() -> Vec<Script> {
    let mut all = slow();
    all.extend(streams());
    all.extend(links());
    all.extend(instructions());
    all.extend(polls());
    all.extend(publications());
    all.extend(sockets());
    all.extend(ends_of_sockets());
    all.extend(handshakes());
    all
}

/// A stream at `/s` of one channel.
fn stream() -> Vec<(&'static str, Vec<Answer>)> {
    vec![("/s", vec![ok("Grip-Hold: stream\nGrip-Channel: $a", "begin\n")])]
}

const CLOSE_STREAM: &str = r#"{"channel":"$a","formats":{"http-stream":{"action":"close"}}}"#;

fn slow() -> Vec<Script> {
    vec![
        script(
            "order",
            stream(),
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin"),
                Publish(
                    r#"{"channel":"$a","id":"a","prev-id":"x","formats":{"http-stream":{"content":"a\n"}}}"#,
                ),
                Publish(
                    r#"{"channel":"$a","id":"c","prev-id":"b","formats":{"http-stream":{"content":"c\n"}}}"#,
                ),
                Publish(
                    r#"{"channel":"$a","id":"b","prev-id":"a","formats":{"http-stream":{"content":"b\n"}}}"#,
                ),
                Text("c\n"),
                Publish(
                    r#"{"channel":"$a","id":"b","prev-id":"a","formats":{"http-stream":{"content":"again\n"}}}"#,
                ),
                Publish(
                    r#"{"channel":"$a","id":"e","prev-id":"d","formats":{"http-stream":{"content":"e after a gap\n"}}}"#,
                ),
                Text("e after a gap\n"),
                Publish(
                    r#"{"channel":"$a","id":"h","prev-id":"g","no-seq":true,"formats":{"http-stream":{"content":"h at once\n"}}}"#,
                ),
                Text("h at once\n"),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
        script(
            "poll-time",
            vec![(
                "/p",
                vec![ok(
                    "Grip-Hold: response\nGrip-Channel: $a\nGrip-Timeout: 5\nX-T: 1\n\
                     Content-Type: application/json",
                    r#"{"late":true}"#,
                )],
            )],
            vec![Ask("GET /p", ""), Reply, Asked(1)],
        ),
        script(
            "poll-least-time",
            vec![(
                "/p",
                vec![ok("Grip-Hold: response\nGrip-Channel: $a\nGrip-Timeout: 1", "late")],
            )],
            vec![Ask("GET /p", ""), Held("response", "$a", 1), Reply, Asked(1)],
        ),
        script(
            "poll-of-no-channel",
            vec![("/p", vec![ok("Grip-Hold: response\nGrip-Timeout: 5", "no channel")])],
            vec![Ask("GET /p", ""), Reply, Asked(1)],
        ),
        script(
            "poll-status",
            vec![(
                "/p",
                vec![ok(
                    "Grip-Hold: response\nGrip-Channel: $a\nGrip-Timeout: 5\n\
                     Grip-Status: 404 Not Found",
                    "late",
                )],
            )],
            vec![Ask("GET /p", ""), Reply],
        ),
        script(
            "poll-document-time",
            vec![(
                "/p",
                vec![ok(
                    "Content-Type: application/grip-instruct",
                    r#"{"hold":{"mode":"response","channels":[{"name":"$a"}],"timeout":5},
                        "response":{"code":202,"headers":{"X-A":"1"},"body-bin":"AP8="}}"#,
                )],
            )],
            vec![Ask("GET /p", ""), Reply],
        ),
        silence(
            "silence-raw",
            "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Keep-Alive: still here; timeout=2",
            "still here",
        ),
        silence(
            "silence-cstring",
            "Grip-Hold: stream\nGrip-Channel: $a\n\
             Grip-Keep-Alive: a\\n\\x42\\r\\\\; format=cstring; timeout=2",
            "a\nB\r\\",
        ),
        silence(
            "silence-base64",
            "Grip-Hold: stream\nGrip-Channel: $a\n\
             Grip-Keep-Alive: a2IK; format=base64; timeout=2; mode=interval",
            "kb\n",
        ),
        script(
            "silence-document",
            vec![(
                "/s",
                vec![ok(
                    "Content-Type: application/grip-instruct",
                    r#"{"hold":{"mode":"stream","channels":[{"name":"$a"}],
                        "keep-alive":{"content-bin":"a2IK","timeout":2}}}"#,
                )],
            )],
            vec![Ask("GET /s", ""), Head, Beat("kb\n"), Publish(CLOSE_STREAM), End],
        ),
        script(
            "socket-silence",
            vec![(
                "/w",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip",
                        &["OPEN", r#"TEXT c:{"type":"keep-alive","content":"still","timeout":2}"#],
                    ),
                    events("", &[r#"TEXT c:{"type":"keep-alive"}"#, "TEXT m:stopped"]),
                ],
            )],
            vec![Open("/w"), Messages(1), Say(Message::text("stop")), Messages(1), Asked(2)],
        ),
        script(
            "socket-later",
            vec![(
                "/w",
                vec![
                    events("Sec-WebSocket-Extensions: grip", &["OPEN"]),
                    events(
                        "",
                        &[
                            r#"TEXT c:{"type":"send-delayed","content":"late","timeout":1}"#,
                            "TEXT m:at once",
                        ],
                    ),
                    events(
                        "",
                        &[
                            r#"TEXT c:{"type":"send-delayed","content":"flushed","timeout":60}"#,
                            r#"TEXT c:{"type":"flush-delayed"}"#,
                        ],
                    ),
                ],
            )],
            vec![
                Open("/w"),
                Say(Message::text("one")),
                Messages(2),
                Say(Message::text("two")),
                Messages(1),
                Asked(3),
            ],
        ),
        script(
            "link-time",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Link: </$n/next>; rel=next; timeout=2",
                        "begin\n",
                    )],
                ),
                ("/next", vec![ok("", "end\n")]),
            ],
            vec![Ask("GET /s", ""), Head, End, Asked(2)],
        ),
        script(
            "link-fails",
            vec![
                ("/s", vec![ok("Grip-Link: </$n/next>; rel=next", "begin\n")]),
                (
                    "/next",
                    vec![
                        status("500 Oops", "", ""),
                        status("404 Not Found", "", ""),
                        ok("", "end\n"),
                    ],
                ),
            ],
            vec![Ask("GET /s", ""), Head, End, Asked(4)],
        ),
    ]
}

fn silence(name: &'static str, fields: &'static str, content: &'static str) -> Script {
    script(
        name,
        vec![("/s", vec![ok(fields, "begin\n")])],
        vec![Ask("GET /s", ""), Head, Beat(content), Publish(CLOSE_STREAM), End],
    )
}

fn streams() -> Vec<Script> {
    vec![
        script(
            "no-instructions",
            vec![
                ("/a?q=1", vec![ok("X-App: 1\nContent-Type: text/plain", "plain\n")]),
                ("/b", vec![ok("Grip-Channel: $a\nGrip-Foo: 1\nX-App: 2", "no hold\n")]),
                ("/c", vec![status("404 Not Found", "Grip-Status: 410 Gone", "no hold\n")]),
            ],
            vec![
                Ask(
                    "GET /a?q=1\nGrip-Sig: forged\nGrip-Feature: forged\nGrip-Last: forged\n\
                     X-Own: 1\nCookie: a=b",
                    "",
                ),
                Reply,
                Again("GET /b"),
                Reply,
                Again("GET /c"),
                Reply,
            ],
        ),
        script(FEATURES, vec![("/a", vec![ok("", "plain\n")])], vec![Ask("GET /a", ""), Reply]),
        script(
            "forged-fields",
            vec![("/a", vec![ok("", "plain\n")])],
            vec![
                Ask(
                    "GET /a\nMeta-User: forged\nConnection-Id: 01234567-89ab-cdef-0123-456789abcdef",
                    "",
                ),
                Reply,
            ],
        ),
        script(
            "stream",
            vec![(
                "/s",
                vec![ok(
                    "Grip-Hold: stream\nGrip-Channel: $a, $b\nGrip-Channel: $c; filter=nope\n\
                     X-App: 1\nContent-Type: text/plain",
                    "begin\n",
                )],
            )],
            vec![
                Ask("GET /s\nX-Own: 1", ""),
                Head,
                Text("begin\n"),
                Publish(r#"{"channel":"$a","formats":{"http-stream":{"content":"a \u00e9\n"}}}"#),
                Text("\u{e9}\n"),
                Publish(r#"{"channel":"$b","formats":{"http-stream":{"content-bin":"AP8="}}}"#),
                Publish(r#"{"channel":"$c","http-stream":{"content":"in the item itself\n"}}"#),
                Text("itself\n"),
                Publish(
                    r#"{"channel":"$n","formats":{"http-stream":{"content":"elsewhere\n"}}},
                       {"channel":"$a","formats":{"http-response":{"body":"for polls\n"}}},
                       {"channel":"$a","formats":{"ws-message":{"content":"for sockets\n"}}},
                       {"channel":"$a","formats":{"http-stream":{"content":""}}},
                       {"channel":"$b","formats":{"http-stream":{"content":"and last\n"}}}"#,
                ),
                Text("last\n"),
                Publish(CLOSE_STREAM),
                End,
                Asked(1),
            ],
        ),
        script(
            "stream-of-an-old-client",
            stream(),
            vec![
                AskOld("GET /s"),
                Head,
                Text("begin\n"),
                Publish(r#"{"channel":"$a","formats":{"http-stream":{"content":"one\n"}}}"#),
                Text("one\n"),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
        script(
            "stream-of-no-channel",
            vec![("/s", vec![ok("Grip-Hold: stream", "begin\n")])],
            vec![Ask("GET /s", ""), Head, Text("begin\n"), Leave, Asked(1)],
        ),
        script(
            "stream-after-another-request",
            vec![
                ("/s", vec![ok("Grip-Hold: stream\nGrip-Channel: $a", "begin\n")]),
                ("/a", vec![ok("", "plain")]),
            ],
            vec![
                Ask("GET /a", ""),
                Reply,
                Again("GET /s"),
                Head,
                Text("begin\n"),
                Publish(CLOSE_STREAM),
                End,
                Further("GET /a"),
            ],
        ),
        script("head", stream(), vec![Ask("HEAD /s", ""), Head, Asked(1)]),
        script(
            "filters",
            vec![(
                "/s",
                vec![ok(
                    "Grip-Hold: stream\n\
                     Grip-Channel: $a; filter=skip-self; filter=skip-users; filter=require-sub; \
                     filter=var-subst, $b\n\
                     Grip-Set-Meta: user=\"u1\", name=\"A\\\"x\"",
                    "",
                )],
            )],
            vec![
                Ask("GET /s", ""),
                Head,
                Publish(
                    r#"{"channel":"$a","meta":{"sender":"u1"},"formats":{"http-stream":{"content":"own\n"}}},
                       {"channel":"$a","meta":{"sender":"u2"},"formats":{"http-stream":{"content":"to %(user)s %(name)s\n"}}},
                       {"channel":"$a","meta":{"skip_users":"u0,u1"},"formats":{"http-stream":{"content":"skipped\n"}}},
                       {"channel":"$a","meta":{"skip_users":"u0"},"formats":{"http-stream":{"content":"not skipped\n"}}},
                       {"channel":"$a","meta":{"require_sub":"$c"},"formats":{"http-stream":{"content":"needs c\n"}}},
                       {"channel":"$a","meta":{"require_sub":"$b"},"formats":{"http-stream":{"content":"needs b\n"}}},
                       {"channel":"$b","meta":{"sender":"u1"},"formats":{"http-stream":{"content":"as it is: %(user)s\n"}}}"#,
                ),
                Text("as it is"),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
        script(
            "unknown-variable",
            vec![(
                "/s",
                vec![ok("Grip-Hold: stream\nGrip-Channel: $a; filter=var-subst", "begin\n")],
            )],
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin\n"),
                Publish(
                    r#"{"channel":"$a","formats":{"http-stream":{"content":"to %(none)s\n"}}}"#,
                ),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
        script(
            "document",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Content-Type: application/grip-instruct",
                        r#"{"hold":{"mode":"stream","channels":[{"name":"$a","filters":["skip-self"]}],
                            "meta":{"user":"u1"}},
                            "response":{"code":202,"headers":{"Content-Type":"text/x"},"body":"begin\n"}}"#,
                    )],
                ),
                (
                    "/p",
                    vec![ok(
                        "Content-Type: application/grip-instruct",
                        r#"{"hold":{"channels":[{"name":"$b"}]},
                            "response":{"headers":[["X-A","1"],["X-A","2"]]}}"#,
                    )],
                ),
                (
                    "/no-hold",
                    vec![ok(
                        "Content-Type: application/grip-instruct",
                        r#"{"response":{"body":"no hold\n"}}"#,
                    )],
                ),
                ("/broken", vec![ok("Content-Type: application/grip-instruct", "{broken")]),
            ],
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin\n"),
                Publish(
                    r#"{"channel":"$a","meta":{"sender":"u1"},"formats":{"http-stream":{"content":"own\n"}}},
                       {"channel":"$a","meta":{"sender":"u2"},"formats":{"http-stream":{"content":"one\n"}}}"#,
                ),
                Text("one\n"),
                Publish(CLOSE_STREAM),
                End,
                Ask("GET /p", ""),
                Held("response", "$b", 1),
                Publish(r#"{"channel":"$b","formats":{"http-response":{"body":"two"}}}"#),
                Reply,
                Ask("GET /no-hold", ""),
                Reply,
                Ask("GET /broken", ""),
                Reply,
            ],
        ),
        script(
            "odd-case",
            vec![("/s", vec![ok("grip-hold: Stream\ngrip-channel: $a", "begin\n")])],
            vec![Ask("GET /s", ""), Reply],
        ),
        script(
            "stream-not-modified",
            vec![(
                "/s",
                vec![status("304 Not Modified", "Grip-Hold: stream\nGrip-Channel: $a", "")],
            )],
            vec![Ask("GET /s", ""), Head],
        ),
        script(
            "same-id",
            stream(),
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin"),
                Publish(
                    r#"{"channel":"$a","id":"1","formats":{"http-stream":{"content":"one\n"}}}"#,
                ),
                Publish(
                    r#"{"channel":"$a","id":"1","formats":{"http-stream":{"content":"one again\n"}}}"#,
                ),
                Publish(
                    r#"{"channel":"$b","id":"1","formats":{"http-stream":{"content":"no\n"}}}"#,
                ),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
    ]
}

fn links() -> Vec<Script> {
    vec![
        script(
            "links",
            vec![
                ("/s", vec![ok("Grip-Link: <next?part=2>; rel=next\nX-A: 1", "part 1\n")]),
                (
                    "/next?part=2",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a; prev-id=2\nX-A: 2\n\
                         Grip-Link: </$n/rest>; rel=next; timeout=60",
                        "part 2\n",
                    )],
                ),
                (
                    "/rest",
                    vec![
                        ok(
                            "Grip-Hold: stream\nGrip-Channel: $a; prev-id=4\n\
                             Grip-Link: </$n/rest>; rel=next; timeout=60",
                            "up to 4\n",
                        ),
                        ok("", "end\n"),
                    ],
                ),
            ],
            vec![
                Ask("GET /s\nCookie: a=b\nX-Own: 1", ""),
                Head,
                Text("part 2\n"),
                Publish(
                    r#"{"channel":"$a","id":"3","prev-id":"2","formats":{"http-stream":{"content":"three\n"}}}"#,
                ),
                Text("three\n"),
                // The fourth is missing.
                Publish(
                    r#"{"channel":"$a","id":"5","prev-id":"4","no-seq":true,"formats":{"http-stream":{"content":"five\n"}}}"#,
                ),
                Text("up to 4\n"),
                Publish(
                    r#"{"channel":"$a","id":"7","prev-id":"6","no-seq":true,"formats":{"http-stream":{"content":"seven\n"}}}"#,
                ),
                End,
                Asked(4),
            ],
        ),
        script(
            "hint-to-a-stream",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Link: </$n/rest>; rel=next; timeout=60",
                        "begin\n",
                    )],
                ),
                ("/rest", vec![ok("", "end\n")]),
            ],
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin\n"),
                Publish(r#"{"channel":"$a","formats":{"http-stream":{"action":"hint"}}}"#),
                End,
                Asked(2),
            ],
        ),
        script(
            "missing-at-a-stream",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a; prev-id=1\n\
                         Grip-Link: </$n/rest>; rel=next; timeout=60",
                        "begin\n",
                    )],
                ),
                (
                    "/rest",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a; prev-id=9\n\
                         Grip-Link: </$n/rest>; rel=next; timeout=60",
                        "up to 9\n",
                    )],
                ),
            ],
            vec![
                Publish(
                    r#"{"channel":"$a","id":"9","prev-id":"8","formats":{"http-stream":{"content":"nine\n"}}}"#,
                ),
                Ask("GET /s", ""),
                Head,
                Text("up to 9\n"),
                Publish(
                    r#"{"channel":"$a","id":"10","prev-id":"9","formats":{"http-stream":{"content":"ten\n"}}}"#,
                ),
                Text("ten\n"),
                Publish(
                    r#"{"channel":"$a","id":"11","prev-id":"10","formats":{"http-stream":{"action":"close"}}}"#,
                ),
                End,
                Asked(2),
            ],
        ),
        script(
            "item-without-an-id",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a; prev-id=1\n\
                         Grip-Link: </$n/rest>; rel=next; timeout=60",
                        "begin\n",
                    )],
                ),
                ("/rest", vec![ok("", "end\n")]),
            ],
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin\n"),
                Publish(r#"{"channel":"$a","formats":{"http-stream":{"content":"no id\n"}}}"#),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
        script(
            "link-to-a-poll",
            vec![
                ("/s", vec![ok("Grip-Link: </$n/next>; rel=next", "begin\n")]),
                ("/next", vec![ok("Grip-Hold: response\nGrip-Channel: $a", "poll\n")]),
            ],
            vec![Ask("GET /s", ""), Head, End, Asked(2)],
        ),
        script(
            "no-link",
            vec![("/s", vec![ok("Grip-Hold: stream\nGrip-Channel: $a; prev-id=1", "begin\n")])],
            vec![Ask("GET /s", ""), Reply],
        ),
        script(
            "gone",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Link: </$n/gone>; rel=gone",
                        "begin\n",
                    )],
                ),
                ("/gone", vec![ok("", "")]),
                ("/then", vec![ok("", "then")]),
            ],
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin\n"),
                Leave,
                AskedIf("link:gone", 2),
                Ask("GET /then", ""),
                Reply,
            ],
        ),
        script(
            "hint-without-a-link",
            stream(),
            vec![
                Ask("GET /s", ""),
                Head,
                Text("begin"),
                Publish(r#"{"channel":"$a","formats":{"http-stream":{"action":"hint"}}}"#),
                Publish(r#"{"channel":"$a","formats":{"http-stream":{"content":"one\n"}}}"#),
                Publish(CLOSE_STREAM),
                End,
            ],
        ),
        script(
            "many-fields",
            vec![
                (
                    "/s",
                    vec![ok(
                        "Grip-Link: </$n/next>; rel=next, </$n/gone>; rel=gone\nGrip-Status: 202",
                        "begin\n",
                    )],
                ),
                ("/next", vec![ok("Grip-Status: 404\nX-A: 1", "next\n")]),
            ],
            vec![Ask("GET /s", ""), Head, End],
        ),
    ]
}

fn instructions() -> Vec<Script> {
    let wrong = |name, fields| {
        script(name, vec![("/s", vec![ok(fields, "b")])], vec![Ask("GET /s", ""), Reply, Asked(1)])
    };
    vec![
        wrong("wrong-hold", "Grip-Hold: odd\nGrip-Channel: $a"),
        wrong("wrong-time", "Grip-Hold: response\nGrip-Channel: $a\nGrip-Timeout: abc"),
        wrong("wrong-mode", "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Keep-Alive: x; mode=odd"),
        wrong(
            "wrong-format",
            "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Keep-Alive: x; format=odd",
        ),
        wrong("wrong-link", "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Link: odd; rel=next"),
        wrong("wrong-status", "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Status: 999x"),
        script(
            "wrong-value",
            vec![(
                "/s",
                vec![ok("Grip-Hold: stream\nGrip-Channel: $a\nGrip-Set-Meta: user", "begin\n")],
            )],
            vec![Ask("GET /s", ""), Head, Leave],
        ),
        script(
            "shown-fields",
            vec![(
                "/s",
                vec![ok(
                    "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Expose-Headers: X-A\nX-A: 1\nX-B: 2",
                    "begin\n",
                )],
            )],
            vec![Ask("GET /s", ""), Head, Text("begin\n")],
        ),
        wrong(
            "silence-of-nothing",
            "Grip-Hold: stream\nGrip-Channel: $a\nGrip-Keep-Alive: ; timeout=2",
        ),
    ]
}

fn polls() -> Vec<Script> {
    let poll = |fields| vec![("/p", vec![ok(fields, "late")])];
    vec![
        script(
            "poll",
            vec![
                (
                    "/p",
                    vec![ok(
                        "Grip-Hold: response\nGrip-Channel: $a\nX-T: 1\nX-P: 1\n\
                         Content-Type: application/json",
                        "{}",
                    )],
                ),
                (
                    "/q",
                    vec![ok(
                        "Grip-Hold: response\nGrip-Channel: $b\nX-T: 1\nContent-Type: text/x",
                        "{}",
                    )],
                ),
            ],
            vec![
                Ask("GET /p", ""),
                Held("response", "$a", 1),
                Publish(
                    r#"{"channel":"$b","formats":{"http-response":{"body":"elsewhere"}}},
                       {"channel":"$a","formats":{"http-stream":{"content":"for streams"}}},
                       {"channel":"$a","formats":{"http-response":{"code":201,"reason":"Created",
                        "headers":{"X-P":"2"},"body":"{\"x\":1}"}}}"#,
                ),
                Reply,
                Again("GET /q"),
                Held("response", "$b", 1),
                Publish(
                    r#"{"channel":"$b","formats":{"http-response":{
                        "headers":[["Content-Type","text/a"],["Set-Cookie","a=1"],["Set-Cookie","b=2"]],
                        "body-bin":"AP9B"}}}"#,
                ),
                Reply,
                Asked(2),
            ],
        ),
        script(
            "reason",
            poll("Grip-Hold: response\nGrip-Channel: $a"),
            vec![
                Ask("GET /p", ""),
                Held("response", "$a", 1),
                Publish(
                    r#"{"channel":"$a","formats":{"http-response":{"code":201,"reason":"Made","body":"x"}}}"#,
                ),
                Reply,
            ],
        ),
        script(
            "hint",
            vec![(
                "/p?x=1",
                vec![
                    ok("Grip-Hold: response\nGrip-Channel: $a", "late"),
                    ok("Grip-Hold: response\nGrip-Channel: $b", "later"),
                    ok("X-A: 1", "fresh"),
                ],
            )],
            vec![
                Ask("POST /p?x=1\nX-Own: 1\nContent-Type: text/x", "abc"),
                Held("response", "$a", 1),
                Publish(r#"{"channel":"$a","formats":{"http-response":{"action":"hint"}}}"#),
                Asked(2),
                Held("response", "$b", 1),
                Publish(r#"{"channel":"$b","formats":{"http-response":{"action":"hint"}}}"#),
                Reply,
                Asked(3),
            ],
        ),
        script(
            "poll-in-order",
            poll("Grip-Hold: response\nGrip-Channel: $a; prev-id=5"),
            vec![
                Ask("GET /p", ""),
                Held("response", "$a", 1),
                Publish(
                    r#"{"channel":"$a","id":"6","prev-id":"5","formats":{"http-response":{"body":"six"}}}"#,
                ),
                Reply,
                Asked(1),
            ],
        ),
        script(
            "poll-of-a-gap",
            vec![(
                "/p",
                vec![
                    ok("Grip-Hold: response\nGrip-Channel: $a; prev-id=5, $b; prev-id=x", "late"),
                    ok("", "fresh"),
                ],
            )],
            vec![
                Ask("GET /p", ""),
                Held("response", "$a", 1),
                Publish(
                    r#"{"channel":"$a","id":"7","prev-id":"6","formats":{"http-response":{"body":"seven"}}}"#,
                ),
                Reply,
                Asked(2),
            ],
        ),
        script(
            "missing-at-a-poll",
            vec![(
                "/p",
                vec![
                    ok("Grip-Hold: response\nGrip-Channel: $a; prev-id=1", "late"),
                    ok("", "fresh"),
                ],
            )],
            vec![
                Publish(
                    r#"{"channel":"$a","id":"9","prev-id":"8","formats":{"http-response":{"body":"nine"}}}"#,
                ),
                Ask("GET /p", ""),
                Reply,
                Asked(2),
            ],
        ),
        script(
            "before-the-hold",
            vec![(
                "/p",
                vec![
                    ok("Grip-Hold: response\nGrip-Channel: $a; prev-id=8", "late"),
                    ok("", "fresh"),
                ],
            )],
            vec![
                Publish(
                    r#"{"channel":"$a","id":"8","formats":{"http-response":{"body":"eight"}}},
                       {"channel":"$a","id":"9","prev-id":"8","formats":{"http-response":{"body":"nine"}}}"#,
                ),
                Ask("GET /p", ""),
                Reply,
            ],
        ),
        script(
            "head-of-a-poll",
            vec![(
                "/p",
                vec![ok("Grip-Hold: response\nGrip-Channel: $a\nGrip-Timeout: 5\nX-A: 1", "late")],
            )],
            vec![Ask("HEAD /p", ""), Head],
        ),
        script(
            "quoted-id",
            vec![(
                "/p",
                vec![ok(
                    "Grip-Hold: response\nGrip-Channel: $a; prev-id=\"5\"; filter=\"skip-self\"",
                    "late",
                )],
            )],
            vec![
                Ask("GET /p", ""),
                Held("response", "$a", 1),
                Publish(
                    r#"{"channel":"$a","id":"6","prev-id":"5","formats":{"http-response":{"body":"six"}}}"#,
                ),
                Reply,
            ],
        ),
    ]
}

fn publications() -> Vec<Script> {
    let post = |body| Control("POST", body);
    vec![
        script(
            "publications",
            Vec::new(),
            vec![
                post("not json"),
                post("[]"),
                post("{}"),
                post(r#"{"items":{}}"#),
                post(r#"{"items":[1]}"#),
                post(r#"{"items":[{"channel":"$a"}]}"#),
                post(r#"{"items":[{"formats":{"http-stream":{"content":"x"}}}]}"#),
                post(r#"{"items":[{"channel":"$a","formats":{}}]}"#),
                post(r#"{"items":[{"channel":"$a","formats":{"http-stream":{}}}]}"#),
                post(
                    r#"{"items":[{"channel":"$a","formats":{"http-stream":{"action":"odd","content":"x"}}}]}"#,
                ),
                post(r#"{"items":[{"channel":"$a","formats":{"http-stream":{"content":1}}}]}"#),
                post(r#"{"items":[{"channel":"$a","formats":{"unknown":{"content":"x"}}}]}"#),
                post(r#"{"items":[{"channel":"$a","formats":{"http-response":{}}}]}"#),
                post(r#"{"items":[{"channel":"$a","formats":{"ws-message":{}}}]}"#),
                post(
                    r#"{"items":[{"channel":"$a","id":5,"formats":{"http-stream":{"content":"x"}}}]}"#,
                ),
                post(r#"{"items":[{"channel":5,"formats":{"http-stream":{"content":"x"}}}]}"#),
                post(r#"{"items":[]}"#),
                Control("GET", ""),
                Control("PUT", r#"{"items":[]}"#),
                Control(
                    "POST\nAccept: application/json",
                    r#"{"items":[{"channel":"$a","formats":{"http-stream":{"content":"x"}}}]}"#,
                ),
                Control("POST\nAccept: image/png", r#"{"items":[]}"#),
                Control("POST\nAccept: application/json", "not json"),
            ],
        ),
        script(
            "odd-items",
            vec![],
            vec![
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"ws-message":{"content":"x","type":"odd"}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"ws-message":{"content-bin":"_"}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"ws-message":{"action":"close","code":"x"}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"http-response":{"body":"x","code":"200"}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"http-response":{"body":"x","code":5}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"http-response":{"body":"x","headers":5}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","formats":{"http-response":{"body":"x","reason":5}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","meta":5,"formats":{"http-response":{"body":"x"}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","prev-id":5,"formats":{"http-response":{"body":"x"}}}]}"#,
                ),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"$a","no-seq":5,"formats":{"http-response":{"body":"x"}}}]}"#,
                ),
                post(r#"{"items":[{"channel":"$a","formats":5}]}"#),
                post(r#"{"items":[{"channel":"$a","formats":{"http-stream":5}}]}"#),
                Control(
                    "POST",
                    r#"{"items":[{"channel":"","formats":{"http-stream":{"content":"x"}}}]}"#,
                ),
                post(""),
            ],
        ),
    ]
}

/// The answers of an application that subscribes a WebSocket to a channel.
fn subscribed(more: Vec<Answer>) -> Vec<(&'static str, Vec<Answer>)> {
    let open = events(
        "Sec-WebSocket-Extensions: grip",
        &["OPEN", r#"TEXT c:{"type":"subscribe","channel":"$a"}"#],
    );
    vec![("/w", [open].into_iter().chain(more).collect())]
}

fn sockets() -> Vec<Script> {
    vec![
        script(
            "socket",
            vec![(
                "/w?x=1",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip\nSet-Meta-User: alice\nX-A: 1\n\
                         Set-Cookie: a=1\nSec-WebSocket-Protocol: chat",
                        &[
                            "OPEN",
                            r#"TEXT c:{"type":"subscribe","channel":"$a"}"#,
                            "TEXT m:welcome",
                            "TEXT no prefix",
                            "TEXT c:no json",
                            r#"TEXT c:{"type":"odd"}"#,
                        ],
                    ),
                    events("Set-Meta-user: \nSet-Meta-B: 1", &["TEXT m:hello", "BINARY m:ab"]),
                    events("", &[]),
                ],
            )],
            vec![
                Open(
                    "/w?x=1\nCookie: s=1\nX-Own: 1\nMeta-User: forged\nConnection-Id: forged\n\
                     Grip-Sig: forged\nSec-WebSocket-Protocol: chat",
                ),
                Messages(1),
                Held("ws", "$a", 1),
                Say(Message::text("hello \u{e9}")),
                Messages(2),
                Say(Message::binary(&b"\x00\r\n"[..])),
                Asked(3),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"content":"text"}}}"#),
                Messages(1),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"content-bin":"AQI="}}}"#),
                Messages(1),
                Publish(
                    r#"{"channel":"$a","formats":{"ws-message":{"content":"t","type":"binary"}}}"#,
                ),
                Messages(1),
                Publish(
                    r#"{"channel":"$a","formats":{"http-stream":{"content":"no"}}},
                       {"channel":"$n","formats":{"ws-message":{"content":"no"}}},
                       {"channel":"$a","ws-message":{"content":"in the item"}}"#,
                ),
                Messages(1),
            ],
        ),
        script(
            "pings",
            subscribed(vec![events("", &[])]),
            vec![
                Open("/w"),
                Held("ws", "$a", 1),
                Publish(
                    r#"{"channel":"$a","formats":{"ws-message":{"type":"ping","content":"pp"}}},
                       {"channel":"$a","formats":{"ws-message":{"type":"pong","content":"qq"}}}"#,
                ),
                Messages(2),
            ],
        ),
        script(
            "pings-of-a-client",
            subscribed(vec![events("", &["PONG ?"])]),
            vec![Open("/w"), Say(Message::Ping("?".into())), Messages(1)],
        ),
        script(
            "filters-of-a-socket",
            vec![(
                "/w",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip",
                        &[
                            "OPEN",
                            r#"TEXT c:{"type":"subscribe","channel":"$a","filters":["skip-self"]}"#,
                            r#"TEXT c:{"type":"set-meta","name":"user","value":"u9"}"#,
                        ],
                    ),
                    events("", &["TEXT m:set"]),
                ],
            )],
            vec![
                Open("/w"),
                Held("ws", "$a", 1),
                Say(Message::text("is it set")),
                Messages(1),
                Publish(
                    r#"{"channel":"$a","meta":{"sender":"u9"},"formats":{"ws-message":{"content":"own"}}},
                       {"channel":"$a","meta":{"sender":"u1"},"formats":{"ws-message":{"content":"other"}}}"#,
                ),
                Messages(1),
            ],
        ),
        script(
            "values-of-a-socket",
            vec![(
                "/w",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip\nSet-Meta-User: u9\nSet-Meta-b: 2",
                        &[
                            "OPEN",
                            r#"TEXT c:{"type":"subscribe","channel":"$a","filters":["skip-self"]}"#,
                        ],
                    ),
                    events("Set-Meta-user: \nSet-Meta-B: 22", &["TEXT m:set"]),
                ],
            )],
            vec![
                Open("/w"),
                Held("ws", "$a", 1),
                Publish(
                    r#"{"channel":"$a","meta":{"sender":"u9"},"formats":{"ws-message":{"content":"own"}}},
                       {"channel":"$a","meta":{"sender":"u1"},"formats":{"ws-message":{"content":"other"}}}"#,
                ),
                Messages(1),
                Say(Message::text("one")),
                Asked(2),
                Say(Message::text("two")),
                Asked(3),
            ],
        ),
        script(
            "unsubscribe",
            vec![(
                "/w",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip",
                        &[
                            "OPEN",
                            r#"TEXT c:{"type":"subscribe","channel":"$a"}"#,
                            r#"TEXT c:{"type":"subscribe","channel":"$b"}"#,
                        ],
                    ),
                    events("", &[r#"TEXT c:{"type":"unsubscribe","channel":"$a"}"#, "TEXT m:done"]),
                ],
            )],
            vec![
                Open("/w"),
                Held("ws", "$b", 1),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"content":"one"}}}"#),
                Messages(1),
                Say(Message::text("leave")),
                Messages(1),
                Left("$a"),
                Publish(
                    r#"{"channel":"$a","formats":{"ws-message":{"content":"no"}}},
                       {"channel":"$b","formats":{"ws-message":{"content":"two"}}}"#,
                ),
                Messages(1),
            ],
        ),
        script(
            "no-extension",
            vec![(
                "/w",
                vec![events(
                    "",
                    &[
                        "OPEN",
                        r#"TEXT c:{"type":"subscribe","channel":"$a"}"#,
                        "TEXT m:raw",
                        "BINARY bare",
                    ],
                )],
            )],
            vec![Open("/w"), Messages(3)],
        ),
        script(
            "prefix",
            vec![(
                "/w",
                vec![events(
                    "Sec-WebSocket-Extensions: grip; message-prefix=\"P!\"",
                    &["OPEN", "TEXT m:not for the client", "TEXT P!own", "TEXT P!"],
                )],
            )],
            vec![Open("/w"), Messages(2)],
        ),
        script(
            "detach",
            vec![(
                "/w",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip",
                        &[
                            "OPEN",
                            r#"TEXT c:{"type":"subscribe","channel":"$a"}"#,
                            r#"TEXT c:{"type":"detach"}"#,
                        ],
                    ),
                    events("", &[]),
                ],
            )],
            vec![
                Open("/w"),
                Asked(2),
                Held("ws", "$a", 1),
                Say(Message::text("into the void")),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"content":"still here"}}}"#),
                Messages(1),
                Close(1000, "bye"),
                Messages(1),
                Asked(2),
            ],
        ),
        script(
            "controls-in-binary",
            vec![(
                "/w",
                vec![
                    events(
                        "Sec-WebSocket-Extensions: grip",
                        &["OPEN", r#"BINARY c:{"type":"detach"}"#],
                    ),
                    events("", &["TEXT m:heard"]),
                ],
            )],
            vec![Open("/w"), Say(Message::text("x")), Messages(1), Asked(2)],
        ),
        script(
            "pings-of-the-application",
            vec![(
                "/w",
                vec![events(
                    "Sec-WebSocket-Extensions: grip",
                    &["OPEN", "PING p", "PONG q", "TEXT m:last"],
                )],
            )],
            vec![Open("/w"), Messages(3)],
        ),
        script(
            "odd-subscriptions",
            vec![(
                "/w",
                vec![events(
                    "Sec-WebSocket-Extensions: grip",
                    &[
                        "OPEN",
                        r#"TEXT c:{"type":"subscribe","channel":""}"#,
                        r#"TEXT c:{"type":"subscribe"}"#,
                        r#"TEXT c:{"type":"unsubscribe","channel":"$b"}"#,
                        r#"TEXT c:{"type":"subscribe","channel":"$a"}"#,
                        r#"TEXT c:{"type":"subscribe","channel":"$a"}"#,
                        "TEXT m:open",
                    ],
                )],
            )],
            vec![
                Open("/w"),
                Messages(1),
                Held("ws", "$a", 1),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"content":"one"}}}"#),
                Messages(1),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"content":"two"}}}"#),
                Messages(1),
            ],
        ),
    ]
}

fn ends_of_sockets() -> Vec<Script> {
    let answered = |name, answer, messages, asked| {
        script(
            name,
            subscribed(vec![answer, events("", &[])]),
            vec![Open("/w"), Say(Message::text("go")), Messages(messages), Asked(asked)],
        )
    };
    vec![
        script(
            "closed-by-the-client",
            subscribed(vec![events("", &["CLOSE 3001 bye"])]),
            vec![Open("/w"), Close(3001, "bye"), Messages(1), Asked(2)],
        ),
        script(
            "gone-client",
            subscribed(vec![events("", &[])]),
            vec![Open("/w"), Held("ws", "$a", 1), Leave, Asked(2)],
        ),
        script(
            "closed-by-an-item",
            subscribed(vec![events("", &["CLOSE"])]),
            vec![
                Open("/w"),
                Held("ws", "$a", 1),
                Publish(
                    r#"{"channel":"$a","formats":{"ws-message":{"action":"close","code":4001,"reason":"kicked"}}}"#,
                ),
                Messages(1),
                Asked(2),
            ],
        ),
        script(
            "closed-without-a-code",
            subscribed(vec![events("", &["CLOSE"])]),
            vec![
                Open("/w"),
                Held("ws", "$a", 1),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"action":"close"}}}"#),
                Messages(1),
                Asked(2),
            ],
        ),
        answered("closed-by-the-application", events("", &["TEXT m:x", "CLOSE 4001 why"]), 2, 3),
        answered("closed-with-zero", events("", &["CLOSE 0"]), 1, 3),
        answered("disconnected", events("", &["DISCONNECT"]), 1, 2),
        answered("failed", status("500 Oops", "", "oops"), 1, 2),
        script(
            "closed-at-once",
            vec![(
                "/w",
                vec![
                    events("Sec-WebSocket-Extensions: grip", &["OPEN", "CLOSE 4001 why"]),
                    events("", &[]),
                ],
            )],
            vec![Open("/w"), Messages(1), Asked(2)],
        ),
        script(
            "disconnected-at-once",
            vec![("/w", vec![events("Sec-WebSocket-Extensions: grip", &["OPEN", "DISCONNECT"])])],
            vec![Open("/w"), Messages(1), Asked(1)],
        ),
        script(
            "closed-by-the-application-without-a-code",
            subscribed(vec![events("", &["CLOSE"]), events("", &[])]),
            vec![Open("/w"), Say(Message::text("go")), Messages(1), Asked(3)],
        ),
        script(
            "close-unanswered",
            subscribed(vec![events("", &[])]),
            vec![Open("/w"), Close(3001, "bye"), Asked(2), Messages(1)],
        ),
        script(
            "item-with-code-zero",
            subscribed(vec![events("", &["CLOSE"])]),
            vec![
                Open("/w"),
                Held("ws", "$a", 1),
                Publish(r#"{"channel":"$a","formats":{"ws-message":{"action":"close","code":0}}}"#),
                Messages(1),
                Asked(2),
            ],
        ),
    ]
}

fn handshakes() -> Vec<Script> {
    let rejected =
        |name, answer| script(name, vec![("/w", vec![answer])], vec![Open("/w"), Asked(1)]);
    const KIND: &str = "Content-Type: application/websocket-events\n\
                        Sec-WebSocket-Extensions: grip";
    vec![
        rejected(
            "forbidden",
            status(
                "403 Forbidden",
                "X-R: 1\nContent-Type: text/plain\nSet-Meta-A: 1\nKeep-Alive-Interval: 60\n\
                 Grip-Channel: $a\nSec-WebSocket-Extensions: grip\nSec-WebSocket-Protocol: chat",
                "no entry",
            ),
        ),
        rejected("no-handshake", ok("Content-Type: text/plain", "OPEN\r\n")),
        rejected("created", status("201 Created", KIND, "OPEN\r\n")),
        rejected("no-event", ok(KIND, "")),
        rejected("text-first", events("Sec-WebSocket-Extensions: grip", &["TEXT m:x"])),
        rejected("close-first", events("", &["CLOSE 1000"])),
        rejected("garbage", ok(KIND, "garbage")),
        rejected("wrong-length", ok(KIND, "OPEN\r\nTEXT zz\r\n")),
        rejected(
            "kind-with-a-parameter",
            ok(
                "Content-Type: application/websocket-events; charset=utf-8\n\
                 Sec-WebSocket-Extensions: grip",
                "OPEN\r\n",
            ),
        ),
    ]
}
