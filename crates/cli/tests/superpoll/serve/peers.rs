//! nginx and haproxy in front of it and behind it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::{Running, Server, Site, connect, free_port, get, noise, run, tool, until};

/// Starts a program and waits until it listens.
fn start(command: &mut Command, port: u16) -> Running {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut running = Running(child);
    until(&format!("{command:?} listens"), || {
        let ended = running.0.try_wait().unwrap();
        assert!(ended.is_none(), "{command:?} ended: {ended:?}");
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    running
}

/// Starts nginx in one process with the settings in `http`, in a folder of its own.
pub(crate) fn nginx(program: &Path, site: &Site, port: u16, http: &str) -> Running {
    let folder = site.path("nginx");
    fs::create_dir_all(folder.join("logs")).unwrap();
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/errors warn;
        events {{ worker_connections 256; }}
        http {{
            access_log {0}/access;
            client_body_temp_path {0}/body; proxy_temp_path {0}/proxy;
            fastcgi_temp_path {0}/fastcgi; uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
            {http}
        }}",
        folder.display()
    );
    let config = site.write("nginx.conf", &text);
    let mut command = Command::new(program);
    command.arg("-p").arg(&folder).arg("-c").arg(config);
    start(&mut command, port)
}

fn haproxy(program: &Path, site: &Site, port: u16, backend: &str) -> Running {
    let text = format!(
        "defaults
        timeout connect 10s
        timeout client 60s
        timeout server 60s
        frontend f
        bind 127.0.0.1:{port}
        {backend}\n"
    );
    let config = site.write("haproxy.cfg", &text.replace("        ", " "));
    // Sections begin in the first column or after blanks, which haproxy does not mind.
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(config);
    start(&mut command, port)
}

#[test]
fn behind_haproxy_the_header_of_the_proxy_protocol_names_the_client() {
    let Some(program) = tool("haproxy") else { return };
    for way in ["send-proxy", "send-proxy-v2"] {
        let site = Site::new();
        let bytes = noise(4 << 20);
        fs::write(site.path("www/file"), &bytes).unwrap();
        let text = "
            [[listeners]]
            address = \"127.0.0.1:0\"
            proxy_protocol = true
            [[hosts]]
            [[hosts.routes]]
            files = { root = \"www\" }
            [access_log]
            path = \"log\"
            format = \"json\"";
        let server = Server::configured(&site.write("behind.toml", text), 1);
        let port = free_port();
        let backend = format!("default_backend b\nbackend b\n server s {} {way}", server.at(0));
        let proxy = haproxy(&program, &site, port, &backend);
        let mut stream = connect(([127, 0, 0, 1], port).into());
        let client = stream.local_addr().unwrap().to_string();
        for _ in 0..3 {
            assert!(get(&mut stream, "/small").ends_with("\r\n\r\n0123456789"), "{way}");
        }
        drop(stream);
        if tool("curl").is_some() {
            let out = site.path("received");
            let url = format!("http://127.0.0.1:{port}/file");
            run(Command::new("curl").args(["-sS", &url, "-o"]).arg(&out));
            assert!(fs::read(out).unwrap() == bytes, "{way}");
        }
        drop(proxy);
        server.finish();
        let log = fs::read_to_string(site.path("log")).unwrap();
        let named = log.lines().filter(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["client"] == client.as_str() && line["target"] == "/small"
        });
        assert_eq!(named.count(), 3, "{way}, {client}: {log}");
    }
}

#[test]
fn nginx_as_an_upstream_serves_requests_and_gets_the_client_address() {
    let Some(program) = tool("nginx") else { return };
    let site = Site::new();
    let bytes = noise(4 << 20);
    fs::write(site.path("www/file"), &bytes).unwrap();
    let port = free_port();
    let http = format!(
        "server {{
            listen 127.0.0.1:{port};
            client_max_body_size 64m;
            root {};
            location = /who {{
                return 200 \"$http_x_forwarded_for $http_x_forwarded_proto $http_host $request_uri\";
            }}
            location = /gone {{ return 503; }}
            location = /upload {{ dav_methods PUT; }}
        }}",
        site.www().display()
    );
    let without_dav = http.replace("location = /upload { dav_methods PUT; }", "");
    let peer = nginx(&program, &site, port, &without_dav);
    let text = format!(
        "[[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        path = \"/app\"
        proxy = {{ upstream = \"nginx\", strip_path = true }}
        [[upstreams.nginx.servers]]
        address = \"127.0.0.1:{port}\"
        [access_log]
        path = \"log\""
    );
    let server = Server::configured(&site.write("before.toml", &text), 1);
    let mut stream = server.connect();
    let who = get(&mut stream, "/app/who?a=b");
    assert!(who.ends_with("\r\n\r\n127.0.0.1 http localhost /who?a=b"), "{who}");
    assert!(get(&mut stream, "/app/small").ends_with("0123456789"));
    assert!(get(&mut stream, "/app/gone").starts_with("HTTP/1.1 503"));
    assert!(get(&mut stream, "/app/nothing").starts_with("HTTP/1.1 404"));
    if tool("curl").is_some() {
        let out = site.path("received");
        let url = server.url("/app/file");
        run(Command::new("curl").args(["-sS", &url, "-o"]).arg(&out));
        assert!(fs::read(&out).unwrap() == bytes);
        run(Command::new("curl").args(["-sS", "-r", "100-1999999", &url, "-o"]).arg(&out));
        assert!(fs::read(&out).unwrap() == bytes[100..2_000_000]);
        let mut pressed = Command::new("curl");
        let told = run(pressed.args(["-sS", "--compressed", &server.url("/app/text.txt")]));
        assert_eq!(told, fs::read_to_string(site.path("www/text.txt")).unwrap());
    }
    // With its server gone there is an answer, and with it back again the right one.
    drop(peer);
    let gone = get(&mut stream, "/app/small");
    assert!(gone.starts_with("HTTP/1.1 502") || gone.starts_with("HTTP/1.1 503"), "{gone}");
    let peer = nginx(&program, &site, port, &without_dav);
    until("the server is found to be back", || {
        get(&mut stream, "/app/small").starts_with("HTTP/1.1 200")
    });
    drop(stream);
    let server_of = format!("the server 127.0.0.1:{port} of nginx is ");
    server.finish_with(&["forwarding a request below /app to ", &server_of]);
    drop(peer);
    let log = fs::read_to_string(site.path("log")).unwrap();
    assert!(log.contains("\"GET /app/who?a=b HTTP/1.1\" 200 "), "{log}");
}

#[test]
fn forwarded_fields_of_nginx_in_front_are_replaced() {
    let Some(program) = tool("nginx") else { return };
    let site = Site::new();
    let (outer, inner) = (free_port(), free_port());
    let text = format!(
        "[[listeners]]
        address = \"unix:socket\"
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        proxy = {{ upstream = \"inner\" }}
        [[upstreams.inner.servers]]
        address = \"127.0.0.1:{inner}\""
    );
    let server = Server::configured(&site.write("between.toml", &text), 2);
    let http = format!(
        "server {{
            listen 127.0.0.1:{outer};
            location / {{
                proxy_pass http://{};
                proxy_http_version 1.1;
                proxy_set_header Connection \"\";
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            }}
        }}
        server {{
            listen 127.0.0.1:{inner};
            location / {{ return 200 $http_x_forwarded_for; }}
        }}",
        server.at(1)
    );
    let peer = nginx(&program, &site, outer, &http);
    let mut stream = connect(([127, 0, 0, 1], outer).into());
    // Any client can write that field, so the server names the peer that has connected.
    let told = get(&mut stream, "/");
    assert!(told.ends_with("\r\n\r\n127.0.0.1"), "{told}");
    drop((stream, peer));
    server.finish();
}
