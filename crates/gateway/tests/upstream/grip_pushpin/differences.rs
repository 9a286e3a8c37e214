//! The deliberate differences between the gateway and pushpin. `docs/grip.md` tells of those that
//! an application can meet.

/// Lines of scripts that differ.
pub(super) struct Difference {
    /// The scripts in which they do; none: all.
    pub scripts: &'static [&'static str],
    pub pushpin: &'static str,
    pub ours: &'static str,
    pub reason: &'static str,
}

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        scripts: &[],
        pushpin: "HTTP/1.1 502 Bad Gateway
                  content-type: text/plain",
        ours: "HTTP/1.1 502 Bad Gateway
               content-type: text/plain; charset=utf-8
               x-content-type-options: nosniff",
        reason: "the gateway's own texts are in UTF-8, and no browser may take them for a page",
    },
    Difference {
        scripts: &["no-event", "text-first", "close-first", "garbage", "wrong-length"],
        pushpin: r#"HTTP/1.1 502 Bad Gateway
                    body: "Error while proxying to origin.\n""#,
        ours: r#"HTTP/1.1 502 Bad Gateway
                 content-type: text/plain; charset=utf-8
                 x-content-type-options: nosniff
                 body: "Error while proxying to origin.\n""#,
        reason: "a text has a type in answers to handshakes as well",
    },
    Difference {
        scripts: &["features"],
        pushpin: "app: grip-feature: status, session, link:next, filter:skip-self, \
                  filter:skip-users, filter:require-sub, filter:build-id, filter:var-subst",
        ours: "app: grip-feature: status, link:next, link:gone, filter:skip-self, \
               filter:skip-users, filter:require-sub, filter:var-subst",
        reason: "the gateway has no sessions and no ids of builds, and pushpin 1.36 no `gone`",
    },
    Difference {
        scripts: &["forged-fields"],
        pushpin: "app: GET /$n/a
                  app: connection-id: number 0
                  app: grip-sig: signed
                  app: host: a.example
                  app: meta-user: forged",
        ours: "app: GET /$n/a
               app: grip-sig: signed
               app: host: a.example",
        reason: "no client may name what only a gateway does, on no kind of request",
    },
    Difference {
        scripts: &["unknown-variable"],
        pushpin: r#"body: "begin\n\n\nfilter error: var-subst: No such variable \'none\' at position 10\n" ends"#,
        ours: r#"body: "begin\n" ends"#,
        reason: "an item for which a value is missing is left out, instead of ending the stream",
    },
    Difference {
        scripts: &["item-without-an-id"],
        pushpin: r#"body: "begin\nend\n" ends
                    app: GET /$n/s
                    app: grip-sig: signed
                    app: host: a.example
                    app: GET /$n/rest
                    app: grip-last: $a; last-id=1
                    app: grip-sig: signed
                    app: host: a.example"#,
        ours: r#"body: "begin\nno id\n" ends
                 app: GET /$n/s
                 app: grip-sig: signed
                 app: host: a.example"#,
        reason: "only an item that names another one before it shows that this is missing",
    },
    Difference {
        scripts: &["link-to-a-poll"],
        pushpin: r#"body: "begin\npoll\n\n\nNext link returned non-stream hold.\n" ends"#,
        ours: r#"body: "begin\n" ends"#,
        reason: "a mistake is told to the log, and not to the client of a stream",
    },
    Difference {
        scripts: &["no-link"],
        pushpin: r#"HTTP/1.1 200 OK
                    body: "begin\n\n\nchannel \'$a\' specifies prev-id, but no next link found\n""#,
        ours: r#"HTTP/1.1 502 Bad Gateway
                 content-type: text/plain; charset=utf-8
                 x-content-type-options: nosniff
                 body: "Failed to parse accept instructions: channel \'$a\' specifies prev-id, but no next link found\n""#,
        reason: "it is a mistake in instructions like others",
    },
    Difference {
        scripts: &["gone"],
        pushpin: "app: GET /$n/then",
        ours: "app: POST /$n/gone
               app: grip-sig: signed
               app: host: a.example
               app: GET /$n/then",
        reason: "pushpin 1.36 has no links for clients that have gone, which 1.41 has",
    },
    Difference {
        scripts: &["wrong-value"],
        pushpin: "HTTP/1.1 200 OK",
        ours: "HTTP/1.1 502 Bad Gateway
               content-type: text/plain; charset=utf-8
               x-content-type-options: nosniff",
        reason: "a value without its name is a mistake",
    },
    Difference {
        scripts: &["reason"],
        pushpin: "HTTP/1.1 201 Made",
        ours: "HTTP/1.1 201 Created",
        reason: "a status has its usual reason",
    },
    Difference {
        scripts: &["before-the-hold"],
        pushpin: r#"body: "fresh"
                    app: GET /$n/p
                    app: grip-sig: signed
                    app: host: a.example
                    app: GET /$n/p
                    app: grip-last: $a; last-id=8
                    app: grip-sig: signed
                    app: host: a.example"#,
        ours: r#"body: "nine"
                 app: GET /$n/p
                 app: grip-sig: signed
                 app: host: a.example"#,
        reason: "the log has the item, so the application need not be asked for it",
    },
    Difference {
        scripts: &["publications"],
        pushpin: r#"published: 400 text/plain  "Invalid format: \n""#,
        ours: r#"published: 400 text/plain  "Invalid format: \'http-stream\' has the unknown action \'odd\'\n""#,
        reason: "an error has its reason",
    },
    Difference {
        scripts: &["publications"],
        pushpin: r#"published: 400 text/plain  "Invalid format: \'http-response\' does not contain \'body\', \'body-bin\', or \'body-patch\'\n""#,
        ours: r#"published: 400 text/plain  "Invalid format: \'http-response\' does not contain \'body\' or \'body-bin\'\n""#,
        reason: "the gateway has no `body-patch`",
    },
    Difference {
        scripts: &["publications"],
        pushpin: r#"published: 406 text/plain  "Not Acceptable. Supported formats are text/plain and application/json.\n"
                    published: 400 text/plain  "Body is not valid JSON.\n""#,
        ours: r#"published: 406 text/plain  "Not Acceptable. Supported formats are text/plain and application/json.\n"
                 published: 400 application/json  "{\"message\":\"Body is not valid JSON.\"}\n""#,
        reason: "errors have the type that the publisher asks for",
    },
    Difference {
        scripts: &["pings-of-a-client"],
        pushpin: r#"app: "OPEN\r\n"
                    app: POST /$n/w
                    app: connection-id: number 0
                    app: content-type: application/websocket-events
                    app: grip-sig: signed
                    app: host: a.example
                    app: sec-websocket-extensions: grip
                    app: "PING 1\r\n?\r\n""#,
        ours: r#"app: "OPEN\r\n""#,
        reason: "the gateway answers pings itself, so that no application is called for them",
    },
    Difference {
        scripts: &["filters-of-a-socket"],
        pushpin: r#"app: host: a.example
                    app: sec-websocket-extensions: grip
                    app: "TEXT 9\r\nis it set\r\n""#,
        ours: r#"app: host: a.example
                 app: meta-user: u9
                 app: sec-websocket-extensions: grip
                 app: "TEXT 9\r\nis it set\r\n""#,
        reason: "the values of `set-meta` and of `Set-Meta-` are the same ones",
    },
    Difference {
        scripts: &["values-of-a-socket"],
        pushpin: r#"text "own""#,
        ours: r#"text "other""#,
        reason: "the values of `set-meta` and of `Set-Meta-` are the same ones",
    },
    Difference {
        scripts: &["detach"],
        pushpin: r#"close 1000 """#,
        ours: r#"close 1000 "bye""#,
        reason: "the gateway returns the reason of a client that ends",
    },
    Difference {
        scripts: &["closed-with-zero"],
        // The client does not take the code.
        pushpin: r#"close 1002 "Protocol violation""#,
        ours: r#"close 1000 """#,
        reason: "no client takes a code of 0, which libraries send",
    },
    Difference {
        scripts: &["closed-with-zero"],
        pushpin: r#"app: "CLOSE 14\r\n\x03\xeaProtocol violation\r\n""#,
        ours: r#"app: "CLOSE 2\r\n\x03\xe8\r\n""#,
        reason: "the application is told of the end that the client has had",
    },
    Difference {
        scripts: &["forbidden"],
        pushpin: "content-type: text/plain
                  grip-channel: $a",
        ours: "content-type: text/plain",
        reason: "no client sees fields of GRIP, on no kind of request",
    },
    Difference {
        scripts: &["kind-with-a-parameter"],
        pushpin: r#"HTTP/1.1 200 OK
                    content-type: application/websocket-events; charset=utf-8
                    body: "OPEN\r\n""#,
        ours: "HTTP/1.1 101 Switching Protocols",
        reason: "a parameter of the type does not matter",
    },
    Difference {
        scripts: &["stream-after-another-request"],
        pushpin: r#"HTTP/1.1 200 OK
                    body: "plain"
                    app: GET /$n/a
                    app: grip-sig: signed
                    app: host: a.example
                    app: GET /$n/s
                    app: grip-sig: signed
                    app: host: a.example
                    app: GET /$n/a
                    app: grip-sig: signed
                    app: host: a.example"#,
        ours: "the connection has ended
               app: GET /$n/a
               app: grip-sig: signed
               app: host: a.example
               app: GET /$n/s
               app: grip-sig: signed
               app: host: a.example",
        reason: "a connection that is held has no task of HTTP to go back to",
    },
    Difference {
        scripts: &["closed-by-the-application-without-a-code"],
        pushpin: r#"app: "CLOSE 2\r\n\x03\xe8\r\n""#,
        ours: r#"app: "CLOSE\r\n""#,
        reason: "the application is told at once, and not when the client has answered",
    },
    Difference {
        scripts: &["close-unanswered"],
        pushpin: "ends without a word",
        ours: r#"close 3001 "bye""#,
        reason: "the client is answered without the application",
    },
    Difference {
        scripts: &["item-with-code-zero"],
        pushpin: r#"close 1002 "Protocol violation""#,
        ours: r#"close 1000 """#,
        reason: "no client takes a code of 0",
    },
    Difference {
        scripts: &["odd-items"],
        pushpin: r#"published: 400 text/plain  "Invalid format: \'ws-message\' contains \'type\' with unknown value\n"
                    published: 200 text/plain  "Published\n"
                    published: 200 text/plain  "Published\n"
                    published: 200 text/plain  "Published\n"
                    published: 200 text/plain  "Published\n"
                    published: 400 text/plain  "Invalid format: \'http-response\' contains \'headers\' with wrong type\n"
                    published: 400 text/plain  "Invalid format: \'http-response\' contains \'reason\' with wrong type\n"
                    published: 400 text/plain  "Invalid format: publish item object contains \'meta\' with wrong type\n""#,
        ours: r#"published: 400 text/plain  "Invalid format: \'ws-message\' has the unknown type \'odd\'\n"
                 published: 400 text/plain  "Invalid format: \'ws-message\' contains \'content-bin\' with wrong type\n"
                 published: 400 text/plain  "Invalid format: \'ws-message\' contains \'code\' with wrong type\n"
                 published: 400 text/plain  "Invalid format: \'http-response\' contains \'code\' with wrong type\n"
                 published: 400 text/plain  "Invalid format: \'http-response\' contains \'code\' with invalid value\n"
                 published: 400 text/plain  "Invalid format: \'headers\' is not an object or a list of pairs of strings\n"
                 published: 200 text/plain  "Published\n"
                 published: 400 text/plain  "Invalid format: \'meta\' is not an object\n""#,
        reason: "an item of which a part cannot be sent is a mistake, and a reason is not read",
    },
    Difference {
        scripts: &["odd-items"],
        pushpin: r#"published: 400 text/plain  "Invalid format: publish item object contains \'formats\' with wrong type\n"
                    published: 400 text/plain  "Invalid format: \'http-stream\' is not an object\n"
                    published: 200 text/plain  "Published\n""#,
        ours: r#"published: 400 text/plain  "Invalid format: \'formats\' is not an object\n"
                 published: 400 text/plain  "Invalid format: no formats specified\n"
                 published: 400 text/plain  "Invalid format: publish item object contains \'channel\' with invalid value\n""#,
        reason: "these are other words, and a channel has a name",
    },
];
