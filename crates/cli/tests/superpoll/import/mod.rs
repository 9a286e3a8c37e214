//! The command `superpoll import`, with configurations that projects publish for nginx and Caddy.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use superpoll_gateway::config::Config;

use crate::serve::peers::nginx;
use crate::serve::php::php;
use crate::stage::{Server, Site, connect, free_port, response, tool};
use crate::superpoll;

/// Returns the inputs, each with the name of its server.
fn inputs() -> Vec<(&'static str, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/superpoll/import");
    let mut all = Vec::new();
    for server in ["nginx", "caddy"] {
        let entries = fs::read_dir(folder.join(server)).unwrap().flatten();
        all.extend(entries.map(|entry| (server, entry.path())));
    }
    assert_eq!(all.len(), 10);
    all
}

fn import(server: &str, file: &Path) -> (String, String, i32) {
    let output = superpoll().args(["import", server]).arg(file).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

/// Returns the lines of an input on which a directive begins, each with the lines of the blocks
/// around it: a reader of its own, which knows no more than that blocks end lines.
fn directive_lines(text: &str) -> Vec<(usize, Vec<usize>)> {
    let (mut all, mut open) = (Vec::new(), Vec::new());
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "}" {
            open.pop();
            continue;
        }
        if !goes_on {
            all.push((index + 1, open.clone()));
        }
        goes_on = false;
        // A block on one line is a line.
        if line.ends_with('{') {
            open.push(index + 1);
        }
    }
    all
}

/// Returns the lines of an input that an output does not name, neither by themselves nor by a
/// comment about a block around them.
fn vanished(name: &str, input: &str, output: &str) -> Vec<usize> {
    let (mut named, mut covered) = (Vec::new(), Vec::new());
    for line in output.lines() {
        for part in line.split(&format!("{name}:")).skip(1) {
            let digits = part.find(|one: char| !(one.is_ascii_digit() || ", ".contains(one)));
            let numbers = &part[..digits.unwrap_or(part.len())];
            named.extend(numbers.split(',').filter_map(|one| one.trim().parse::<usize>().ok()));
        }
        let about = line.strip_prefix(&format!("# {name}:")).and_then(|rest| rest.split_once(": "));
        if let Some((number, rest)) = about
            && (rest.starts_with("NOT IMPORTED")
                || rest.contains(": not needed: ")
                || rest.contains(" is match of"))
        {
            covered.extend(number.parse::<usize>());
        }
    }
    let lines = directive_lines(input).into_iter();
    let lost = lines.filter(|(line, around)| {
        !named.contains(line) && !around.iter().any(|outer| covered.contains(outer))
    });
    lost.map(|(line, _)| line).collect()
}

/// Lines that say no more than their blocks do: options and definitions, whose contents are named.
fn is_frame(line: &str) -> bool {
    let line = line.trim();
    line == "{"
        || line.starts_with('(')
        || line.starts_with("import ")
        || line.starts_with("http {")
        || line.starts_with("stream {")
}

#[test]
fn no_directive_vanishes() {
    for (server, file) in inputs() {
        let (output, said, code) = import(server, &file);
        let input = fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let lines: Vec<&str> = input.lines().collect();
        let check = |output: &str| -> Vec<usize> {
            let lost = vanished(name, &input, output).into_iter();
            lost.filter(|line| !is_frame(lines[line - 1])).collect()
        };
        let lost = check(&output);
        assert!(lost.is_empty(), "{name}: lines {lost:?} vanish:\n{output}");
        Config::parse("output.toml", &output)
            .unwrap_or_else(|error| panic!("{name}: {error}\n{output}"));
        let is_whole = !output.contains("NOT IMPORTED");
        assert_eq!(code, if is_whole { 0 } else { 3 }, "{name}: {said}");
        assert!(
            said.starts_with("superpoll: ") && said.contains(" directives imported, "),
            "{said}"
        );
        // A directive that is dropped is found.
        let mut found = 0;
        for (at, _) in
            output.lines().enumerate().filter(|(_, line)| line.contains(&format!("{name}:")))
        {
            let rest: Vec<&str> = output
                .lines()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .map(|(_, line)| line)
                .collect();
            found += usize::from(!check(&rest.join("\n")).is_empty());
        }
        assert!(found > 5, "{name}: {found} planted mistakes are found");
    }
}

#[test]
fn a_file_is_written_and_none_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), "a.test {\n respond ok\n}\n").unwrap();
    let run = || {
        let mut command = superpoll();
        command
            .current_dir(folder.path())
            .args(["import", "caddy", "x", "-o", "new.toml"])
            .output()
            .unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"superpoll: wrote new.toml\n");
    assert_eq!(output.stderr, b"superpoll: 2 directives imported, 0 not needed, 0 not imported\n");
    let before = fs::read(folder.path().join("new.toml")).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"superpoll: writing new.toml: File exists (os error 17)\n");
    assert_eq!(fs::read(folder.path().join("new.toml")).unwrap(), before);
    fs::write(folder.path().join("x"), "a {\n").unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"superpoll: x:1: the block is not closed\n");
}

#[test]
fn the_guides_show_what_the_command_prints() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to");
    for (page, server, name) in
        [("from-nginx.md", "nginx", "site.conf"), ("from-caddy.md", "caddy", "Caddyfile")]
    {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        let (_, rest) = text.split_once(&format!("```{server}\n")).unwrap();
        let (input, rest) = rest.split_once("```\n").unwrap();
        let (_, shown) =
            rest.split_once(&format!("    $ superpoll import {server} {name}\n")).unwrap();
        let shown: Vec<&str> = shown
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with("    "))
            .map(str::trim_start)
            .collect();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), input).unwrap();
        let (output, said, _) = import(server, &folder.path().join(name));
        let printed: Vec<&str> = output.lines().chain(said.lines()).collect();
        assert_eq!(shown.join("\n").trim_end(), printed.join("\n"), "{page}");
    }
}

/// Returns the status and the body of an answer.
fn ask(to: SocketAddr, host: &str, path: &str) -> (u16, String) {
    use std::io::Write;
    let mut stream = connect(to);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let answer = response(&mut stream);
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Starts nginx with a configuration, and the server with what it is imported as; both have to
/// answer alike.
fn compare(site: &Site, text: &str, port: u16, stubs: &str, host: &str, paths: &[(&str, u16)]) {
    let Some(program) = tool("nginx") else { return };
    let peer = nginx(&program, site, port, &format!("{stubs}\n{text}"));
    let file = site.write("imported.conf", text);
    let (output, said, _) = import("nginx", Path::new(&file));
    let own = output.replace(&format!("127.0.0.1:{port}\""), "127.0.0.1:0\"");
    let server = Server::configured(&site.write("imported.toml", &own), 1);
    let theirs: SocketAddr = ([127, 0, 0, 1], port).into();
    for (path, expected) in paths {
        let (ours, theirs) = (ask(server.at(0), host, path), ask(theirs, host, path));
        assert_eq!((ours.0, theirs.0), (*expected, *expected), "{path}: {said}{output}");
        if ours.0 == 200 {
            assert_eq!(ours.1, theirs.1, "{path}: {output}");
        }
    }
    drop(peer);
    server.finish();
}

fn input(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/superpoll/import/nginx");
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn wordpress_answers_as_with_nginx() {
    let site = Site::new();
    let Some((fpm, socket)) = php(&site.path(""), 2) else { return };
    let folder = site.path("wordpress");
    for (name, text) in [
        ("index.php", "<?php echo 'index ', $_SERVER['REQUEST_URI'];"),
        ("wp-login.php", "<?php echo 'login ', $_SERVER['QUERY_STRING'];"),
        ("wp-admin/index.php", "<?php echo 'admin';"),
        ("wp-content/uploads/x.php", "<?php echo 'evil';"),
        ("wp-content/a.css", "p {}\n"),
        ("robots.txt", "robots\n"),
        (".htaccess", "secret\n"),
    ] {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
    let port = free_port();
    let params = "/etc/nginx/fastcgi_params";
    let text = input("wordpress.conf")
        .replace("listen 80;", &format!("listen 127.0.0.1:{port};"))
        .replace("    listen [::]:80;\n", "")
        .replace("/var/www/wordpress", folder.to_str().unwrap())
        .replace("/run/php/php-fpm.sock", socket.to_str().unwrap())
        .replace("    server 127.0.0.1:9000 backup;\n", "")
        .replace("include fastcgi_params", &format!("include {params}"));
    // A location of one script below the same folder.
    let (before, after) = text.split_once("    location = /favicon.ico").unwrap();
    let text = format!(
        "{before}    location = /wp-login.php {{
            include {params};
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{};
        }}
    location = /favicon.ico{after}",
        socket.display()
    );
    let paths = [
        ("/", 200),
        ("/hello-world/?p=1", 200),
        ("/wp-login.php?a=b", 200),
        ("/wp-admin/", 200),
        ("/wp-content/a.css", 200),
        ("/wp-content/no.css", 404),
        ("/robots.txt", 200),
        ("/favicon.ico", 404),
        ("/.htaccess", 403),
        ("/wp-content/uploads/x.php", 403),
        ("/nope.php", 404),
    ];
    compare(&site, &text, port, "", "blog.example.org", &paths);
    drop(fpm);
}

#[test]
fn mastodon_answers_as_with_nginx() {
    let site = Site::new();
    let folder = site.path("public");
    for (name, text) in [
        ("robots.txt", "robots\n"),
        ("sw.js", "work();\n"),
        ("assets/a.js", "run();\n"),
        ("500.html", "sorry\n"),
    ] {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
    let (port, web, streaming) = (free_port(), free_port(), free_port());
    let stubs = format!(
        "server {{ listen 127.0.0.1:{web}; location / {{ return 200 \"web $request_uri $http_host $http_x_real_ip\"; }} }}
         server {{ listen 127.0.0.1:{streaming}; location / {{ return 200 \"streaming $request_uri\"; }} }}"
    );
    let text = input("mastodon.conf");
    let (before, rest) = text.split_once("server {\n  listen 80;").unwrap();
    let (_, after) = rest.split_once("\nserver {").unwrap();
    let text = format!("{before}server {{{after}")
        .replace("listen 443 ssl http2;", &format!("listen 127.0.0.1:{port};"))
        .replace("  listen [::]:443 ssl http2;\n", "")
        .replace("  ssl_certificate     /etc/ssl/social.pem;\n  ssl_certificate_key /etc/ssl/social.key;\n", "")
        .replace("/home/mastodon/live/public", folder.to_str().unwrap())
        .replace("/var/cache/nginx", site.path("cache").to_str().unwrap())
        .replace("127.0.0.1:3000", &format!("127.0.0.1:{web}"))
        .replace("127.0.0.1:4000", &format!("127.0.0.1:{streaming}"));
    let paths = [
        ("/robots.txt", 200),
        ("/about?x=1", 200),
        ("/", 200),
        ("/sw.js", 200),
        ("/assets/a.js", 200),
        ("/assets/old.js", 404),
        ("/system/none.png", 404),
        ("/api/v1/streaming/user?a=b", 200),
    ];
    compare(&site, &text, port, &stubs, "social.example.org", &paths);
}

#[test]
fn synapse_answers_as_with_nginx() {
    let site = Site::new();
    let (port, app) = (free_port(), free_port());
    let stubs = format!(
        "server {{ listen 127.0.0.1:{app}; location / {{ return 200 \"$request_uri $http_x_forwarded_for\"; }} }}"
    );
    let text: String = input("synapse.conf")
        .lines()
        .filter(|line| {
            !line.contains("[::]") && !line.contains("8448") && !line.contains("ssl_certificate")
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let text = text
        .replace("listen 443 ssl;", &format!("listen 127.0.0.1:{port};"))
        .replace("localhost:8008", &format!("127.0.0.1:{app}"));
    let paths = [
        ("/_matrix/client/versions?a", 200),
        ("/_matrix/a%2Fb", 200),
        ("/_synapse/client/x", 200),
        ("/_synapse/admin", 404),
        ("/.well-known/matrix/server", 200),
        ("/", 404),
    ];
    compare(&site, &text, port, &stubs, "matrix.example.org", &paths);
}
