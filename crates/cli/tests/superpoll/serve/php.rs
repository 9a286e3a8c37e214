//! php-fpm behind it, next to nginx.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::peers::nginx;
use crate::stage::{Running, Server, Site, free_port, get, noise, response, run, tool, until};

/// Prints the parameters and the body of its request.
const INFO: &str = r#"<?php
header('Content-Type: text/plain');
ksort($_SERVER);
foreach ($_SERVER as $name => $value) if (is_string($value)) echo "$name=$value\n";
$body = file_get_contents('php://input');
echo 'BODY=', strlen($body), ' ', md5($body), "\n";
"#;

/// Does what scripts do to a response.
const ANSWERS: &str = r#"<?php
switch ($_SERVER['QUERY_STRING']) {
    case 'cookies':
        for ($i = 0; $i < 50; $i++) header("Set-Cookie: c$i=v", false);
        echo 'cookies';
        break;
    case 'moved': header('Location: /elsewhere'); break;
    case 'none': header('Status: 204'); break;
    case 'unchanged': header('Status: 304'); break;
    case 'teapot': header('Status: 418 Teapot'); echo 'short and stout'; break;
    case 'large': for ($i = 0; $i < 3000; $i++) echo str_repeat(chr(97 + $i % 26), 1024); break;
    case 'length': header('Content-Length: 102400'); echo str_repeat('x', 102400); break;
    case 'cut': header('Content-Length: 4'); echo 'four and more'; break;
    case 'fatal': nothing_like_this(); break;
    case 'log': error_log('a word for the log'); echo 'said'; break;
}
"#;

/// Returns the php-fpm of this machine, if there is one.
fn fpm() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
        })
        .collect();
    found.sort();
    if found.is_empty() {
        println!("skipped: php-fpm is not installed (package php-fpm)");
    }
    found.pop()
}

/// php-fpm, which is asked to end: its children would stay if it were killed.
pub(crate) struct Php(Running);

impl Drop for Php {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.0.id().to_string()).status();
        if !std::thread::panicking() {
            until("php-fpm ends", || self.0.0.try_wait().is_ok_and(|ended| ended.is_some()));
        }
    }
}

/// Starts php-fpm on a socket in a folder, with so many processes.
pub(crate) fn php(folder: &Path, processes: usize) -> Option<(Php, PathBuf)> {
    let program = fpm()?;
    let socket = folder.join("fpm.sock");
    let config = folder.join("fpm.conf");
    // Only root can be told to be another user, and has to be.
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "user = root\ngroup = root\n" } else { "" };
    let text = format!(
        "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {1}\n\
         pm = static\npm.max_children = {processes}\nping.path = /ping\n\
         php_admin_value[post_max_size] = 2G\n",
        folder.display(),
        socket.display()
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.args(["--nodaemonize", "--fpm-config"]).arg(config);
    if is_root {
        command.arg("--allow-to-run-as-root");
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut php = Php(Running(child));
    until("php-fpm listens", || {
        let ended = php.0.0.try_wait().unwrap();
        assert!(ended.is_none(), "php-fpm ended: {ended:?}");
        UnixStream::connect(&socket).is_ok()
    });
    Some((php, socket))
}

/// A site with scripts.
fn scripts() -> Site {
    let site = Site::new();
    let www = site.www();
    for name in ["index.php", "info.php", "shop/index.php", "sp ace.php", ".hidden.php"] {
        fs::create_dir_all(www.join(name).parent().unwrap()).unwrap();
        fs::write(www.join(name), INFO).unwrap();
    }
    fs::write(www.join("answers.php"), ANSWERS).unwrap();
    fs::write(www.join("img.jpg"), "<?php echo 'a picture with PHP in it';").unwrap();
    site
}

/// Starts the server with php-fpm behind it.
fn server(site: &Site, socket: &Path, more: &str) -> Server {
    let (www, socket) = (site.www(), socket.display());
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         files = {{ root = \"{0}\", otherwise = \"fastcgi\" }}\n\
         fastcgi = {{ upstream = \"php\", root = \"{0}\" }}\nbody_bytes = \"2GiB\"\n\
         [upstreams.php]\nservers = [{{ address = \"unix:{socket}\" }}]\n\
         health = {{ path = \"/ping\" }}\n{more}",
        www.display()
    );
    Server::configured(&site.write("php.toml", &text), 1)
}

/// The status of a response, and what it has printed.
fn printed(response: &str) -> (u16, BTreeMap<String, String>) {
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let lines = body.lines().filter_map(|line| line.split_once('='));
    (status, lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[test]
fn scripts_get_the_parameters_that_nginx_gives() {
    let Some(program) = tool("nginx") else { return };
    let site = scripts();
    let Some((fpm, socket)) = php(&site.path(""), 3) else { return };
    let port = free_port();
    let http = format!(
        "server {{
            listen 127.0.0.1:{port}; root {}; index index.php; server_name app.example;
            location / {{ try_files $uri $uri/ /index.php$is_args$args; }}
            location ~ /\\. {{ return 404; }}
            location ~ [^/]\\.php(/|$) {{
                fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
                set $path_info $fastcgi_path_info;
                try_files $fastcgi_script_name =404;
                include /etc/nginx/fastcgi_params;
                fastcgi_param HTTP_PROXY \"\";
                fastcgi_param PATH_INFO $path_info;
                fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
                fastcgi_pass unix:{};
            }}
        }}",
        site.www().display(),
        socket.display()
    );
    let peer = nginx(&program, &site, port, &http);
    let server = server(&site, &socket, "");
    let ask = |to: std::net::SocketAddr, path: &str, more: &str| {
        let mut stream = crate::stage::connect(to);
        use std::io::Write;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: app.example\r\n{more}Connection: close\r\n\r\n"
        )
        .unwrap();
        printed(&response(&mut stream))
    };
    let theirs = ([127, 0, 0, 1], port).into();
    // Those that tell of the connection or the program, and those that only one of both has.
    let differs = |name: &str| {
        matches!(
            name,
            "REMOTE_PORT"
                | "SERVER_PORT"
                | "SERVER_SOFTWARE"
                | "REQUEST_TIME"
                | "REQUEST_TIME_FLOAT"
                | "HTTP_CONNECTION"
                | "HTTP_PROXY"
                | "REMOTE_USER"
                | "PATH_TRANSLATED"
        )
    };
    let mut scripts = 0;
    for path in [
        "/info.php",
        "/info.php/extra/path?q=1&r=a%20b",
        "/info.php/a%2Fb/c%20d/%C3%A9?x",
        "/shop/",
        "/nope.php",
        "/nope.php/x",
        "/img.jpg/x.php",
        "/img.jpg%00.php",
        "/sp%20ace.php/p",
        "//info.php//y//",
        "/info.php%2Fenc",
        "/pretty/url/42?z=1",
        "/INFO.PHP",
        "/info.php/x.php/y",
        "/info.php?a=1&a=2&%zz",
        "/.hidden.php",
        "/info.php;v=1",
    ] {
        let more = "X-A: 1\r\nX-A: 2\r\nCookie: a=1\r\nX_B: 3\r\nAuthorization: Basic YTpi\r\n";
        let (ours, theirs) = (ask(server.at(0), path, more), ask(theirs, path, more));
        assert_eq!(ours.0, theirs.0, "{path}");
        let [ours, theirs] = [ours.1, theirs.1].map(|of| {
            of.into_iter().filter(|(name, _)| !differs(name)).collect::<BTreeMap<_, _>>()
        });
        scripts += usize::from(!ours.is_empty());
        // nginx passes the last of several fields on, and of the others nothing.
        let unequal: Vec<_> = ours
            .iter()
            .filter(|(name, value)| theirs.get(*name) != Some(value) && *name != "HTTP_X_A")
            .collect();
        assert!(unequal.is_empty(), "{path}: {unequal:?}, nginx has {theirs:?}");
        let lacking: Vec<_> = theirs.keys().filter(|name| !ours.contains_key(*name)).collect();
        assert!(lacking.is_empty(), "{path}: {lacking:?}");
    }
    assert_eq!(scripts, 12);
    assert_eq!(ask(server.at(0), "/shop", "").0, 308);
    drop(peer);
    server.finish();
    drop(fpm);
}

#[test]
fn responses_of_scripts_arrive() {
    let site = scripts();
    let Some((fpm, socket)) = php(&site.path(""), 2) else { return };
    let server = server(&site, &socket, "");
    let mut stream = server.connect();
    let mut of = |query: &str| get(&mut stream, &format!("/answers.php?{query}"));
    for _ in 0..3 {
        assert_eq!(of("cookies").matches("set-cookie: c").count(), 50);
        let moved = of("moved");
        assert!(moved.starts_with("HTTP/1.1 302 "), "{moved}");
        assert!(moved.contains("location: /elsewhere\r\n"), "{moved}");
        assert!(of("none").starts_with("HTTP/1.1 204 "));
        assert!(of("unchanged").starts_with("HTTP/1.1 304 "));
        let teapot = of("teapot");
        assert!(teapot.starts_with("HTTP/1.1 418 Teapot\r\n"), "{teapot}");
        let large = of("large");
        assert!(large.contains(&"z".repeat(1024)), "{} bytes", large.len());
        assert!(of("length").ends_with(&"x".repeat(102_400)));
        assert!(of("cut").ends_with("\r\n\r\nfour"));
        assert!(of("log").contains("said"));
        assert!(of("fatal").starts_with("HTTP/1.1 500 "));
    }
    drop(stream);
    server.finish_with(&["the script /answers.php on unix:"]);
    drop(fpm);
}

/// Ten times more than may be in memory goes up, with a length and without.
#[test]
fn large_uploads_arrive() {
    let Some(_) = tool("curl") else { return };
    let site = scripts();
    let Some((fpm, socket)) = php(&site.path(""), 2) else { return };
    let server = server(&site, &socket, "");
    let bytes = noise(48 << 20);
    fs::write(site.path("upload"), &bytes).unwrap();
    let sum = run(Command::new("md5sum").arg(site.path("upload")));
    let expected = format!("BODY={} {}", bytes.len(), sum.split(' ').next().unwrap());
    for more in [&["-H", "Expect:"][..], &["-H", "Transfer-Encoding: chunked"]] {
        let mut command = Command::new("curl");
        command.args(["-sS", "-T"]).arg(site.path("upload")).args(more);
        let told = run(command.arg(server.url("/info.php")));
        assert!(told.contains(&expected), "{more:?}: {told}");
    }
    server.finish();
    drop(fpm);
}
