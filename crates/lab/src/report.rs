//! The report: one HTML page about every experiment whose record lies in the folder.
//!
//! The page needs nothing but itself: plots are inline SVG, there is no script, no font and no
//! address of another host in it. Its colours follow the reader's choice of light or dark.

use std::fmt::Write as _;
use std::path::Path;

use crate::environment::Environment;
use crate::error::Result;
use crate::record::{self, Record};
use crate::table::Table;
use crate::targets::{self, Target};
use crate::{
    atr, atr_plot, atr_table, echo, files, herd, http, idle, mix, mix_plot, mix_table, models,
    plot, registrations, relay, ring, sit, timers, wake, zombies,
};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fdfdfc;--rule:#c9ced6;--soft:#f1f3f5}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--paper:#16191d;--rule:#3b424c;--soft:#20252b}}
body{margin:2rem auto;padding:0 1rem;max-width:66rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-top:1px solid var(--rule);padding-top:1rem}
figure{margin:1.5rem 0;overflow-x:auto}figure svg{max-width:100%;height:auto}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th{background:var(--soft)}td.name,th.name{text-align:left}
dl{display:grid;grid-template-columns:max-content auto;gap:.2rem 1rem}dt{font-weight:600}dd{margin:0}
";

/// Writes `index.html` over all records in a folder, and the plots beside it.
///
/// # Errors
///
/// [`Error::System`](crate::Error::System) if a file cannot be written.
pub fn write(folder: &Path) -> Result<()> {
    let mut body = String::new();
    if let Some(record) = Record::<atr::Row>::load(&folder.join("atr.json")) {
        body += &atr_section(folder, &record)?;
    }
    if let Some(record) = Record::<mix::Row>::load(&folder.join("mix.json")) {
        body += &mix_section(folder, &record)?;
    }
    if let Some(record) = Record::<models::Row>::load(&folder.join("models.json")) {
        body += &models_section(folder, &record)?;
    }
    if let Some(record) = Record::<wake::Row>::load(&folder.join("wake.json")) {
        body += &wake_section(&record);
    }
    if let Some(record) = Record::<registrations::Row>::load(&folder.join("registrations.json")) {
        body += &registrations_section(folder, &record)?;
    }
    if let Some(record) = Record::<ring::Row>::load(&folder.join("ring.json")) {
        body += &ring_section(folder, &record)?;
    }
    if let Some(record) = Record::<herd::Row>::load(&folder.join("herd.json")) {
        body += &herd_section(folder, &record)?;
    }
    if let Some(record) = Record::<echo::Row>::load(&folder.join("echo.json")) {
        body += &echo_section(folder, &record)?;
    }
    if let Some(record) = Record::<http::Row>::load(&folder.join("http.json")) {
        body += &http_section(folder, &record)?;
    }
    if let Some(record) = Record::<files::Row>::load(&folder.join("files.json")) {
        body += &files_section(folder, &record)?;
    }
    if let Some(record) = Record::<relay::Row>::load(&folder.join("relay.json")) {
        body += &relay_section(folder, &record)?;
    }
    if let Some(record) = Record::<timers::Row>::load(&folder.join("timers.json")) {
        body += &timers_section(folder, &record)?;
    }
    if let Some(record) = Record::<zombies::Row>::load(&folder.join("zombies.json")) {
        body += &zombies_section(folder, &record)?;
    }
    if let Some(record) = Record::<idle::Row>::load(&folder.join("idle.json")) {
        body += &idle_section(folder, &record)?;
    }
    if let Some(record) = Record::<sit::Row>::load(&folder.join("sit.json")) {
        body += &sit_section(folder, &record)?;
    }
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>superpoll lab</title><style>\n{STYLE}</style></head><body>\n\
         <h1>superpoll lab</h1>\n\
         <p>Every experiment does the same work with every subject, in turns, and checks each \
         byte. Compare ratios within one table; absolute times belong to this machine and this \
         hour.</p>\n{body}</body></html>\n"
    );
    record::write(&folder.join("index.html"), &page)
}

fn atr_section(folder: &Path, record: &Record<atr::Row>) -> Result<String> {
    let mut text = "<h2>atr: active / total</h2>\n".to_owned();
    text += "<p>In every round one byte is written to each active descriptor; the poller reports \
             them and each is read. “Loop” is the time of waiting and reading, “with writes” adds \
             what the writes cost more than to descriptors that nobody watches: epoll makes the \
             writer pay for the wake-up. “Pure” is the best of poll and both triggers of epoll, \
             raw or ours.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for (name, rows) in atr::sweeps(&record.rows) {
        let _ = writeln!(text, "<h3>{}</h3>", escaped(&name));
        let stem = format!("atr-{}", name.replace(' ', "-"));
        for (file, plot) in [
            (format!("{stem}.svg"), atr_plot::quotient(&name, &rows)),
            (format!("{stem}-subjects.svg"), atr_plot::subjects(&name, &rows)),
        ] {
            let svg = plot.svg()?;
            record::write(&folder.join(file), &plot::standalone(&svg))?;
            let _ = writeln!(text, "<figure>{svg}</figure>");
        }
        for line in atr_table::crossings(&rows) {
            let _ = writeln!(text, "<p>{}.</p>", escaped(&line));
        }
        text += &table(&atr_table::sweep(&rows));
        text += "<p>Each subject against the best pure one:</p>\n";
        text += &table(&atr_table::subjects(&rows));
    }
    text += &kept(&targets::of_atr(&record.rows));
    Ok(text)
}

fn mix_section(folder: &Path, record: &Record<mix::Row>) -> Result<String> {
    let mut text = "<h2>mix: busy and idle descriptors together</h2>\n".to_owned();
    text += "<p>Cost per round (waiting, reading, upkeep and what the writers pay) against the \
             best pure poller of the same run; the floor knows what is ready and only reads.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    let svg = mix_plot::svg(&record.rows);
    record::write(&folder.join("mix.svg"), &plot::standalone(&svg))?;
    let _ = writeln!(text, "<figure>{svg}</figure>");
    text += &table(&mix_table::costs(&record.rows));
    text += "<p>The loop's own time:</p>\n";
    text += &table(&mix_table::loops(&record.rows));
    text += &kept(&targets::of_mix(&record.rows));
    Ok(text)
}

fn models_section(folder: &Path, record: &Record<models::Row>) -> Result<String> {
    let mut text = "<h2>models: try, signals, ask, register</h2>\n".to_owned();
    text += "<p>Four ways to learn which descriptors are ready, each as the shortest loop, over the ratio of \
             active to all. The loop alone is waiting and reading; “with writers” adds what the writes cost \
             more than to descriptors that nobody watches. “Best” is the best of all loops at that ratio, \
             “calls” are system calls, reads included, and “overflows” counts how often the kernel had no \
             room to note an event; every byte was read all the same. “While quiet” is the processor time \
             during a wait in which nothing happens. The floor knows what is ready and only reads.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for (name, rows) in models::sweeps(&record.rows) {
        let _ = writeln!(text, "<h3>{}</h3>", escaped(&name));
        let stem = format!("models-{}", name.replace(' ', "-"));
        for (file, with_writers) in
            [(format!("{stem}.svg"), false), (format!("{stem}-with-writers.svg"), true)]
        {
            let Some(plot) = models::plot::ratios(&name, &rows, with_writers) else { continue };
            let svg = plot.svg()?;
            record::write(&folder.join(file), &plot::standalone(&svg))?;
            let _ = writeln!(text, "<figure>{svg}</figure>");
        }
        let _ = writeln!(text, "<p>{}</p>\n<ul>", escaped(models::table::FROM_TO));
        for line in models::table::verdicts(&rows) {
            let _ = writeln!(text, "<li>{}</li>", escaped(&line));
        }
        text += "</ul>\n";
        text += "<p>Each loop against the best of all:</p>\n";
        text += &table(&models::table::subjects(&rows));
        text += "<p>Time per round of the loop alone:</p>\n";
        text += &table(&models::table::sweep(&rows, atr_table::loop_time));
        text += "<p>With what the writers pay:</p>\n";
        text += &table(&models::table::sweep(&rows, atr_table::cost));
    }
    Ok(text)
}

fn wake_section(record: &Record<wake::Row>) -> String {
    let mut text = "<h2>wake: a loop that has gone quiet</h2>\n".to_owned();
    text += "<p>Some descriptors were busy; then nothing happens for five milliseconds, and a \
             child process on another processor writes one byte to any of them. Measured is the \
             time from right before the write until the byte is read.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    text += &table(&wake::table(&record.rows));
    text + &kept(&targets::of_wake(&record.rows))
}

fn registrations_section(folder: &Path, record: &Record<registrations::Row>) -> Result<String> {
    let mut text = "<h2>registrations: to begin and to end watching</h2>\n".to_owned();
    text += "<p>Nanoseconds of processor time per descriptor. All are registered, changed and deregistered in \
             batches, each of which the kernel knows before the next begins; each part ends with a look at what \
             is ready. That a registration holds, and that it has ended, is checked with bytes in every round. \
             “raw-epoll” makes a call of epoll_ctl for each; ratios to it are those of each round.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for kind in registrations::table::kinds(&record.rows) {
        let _ = writeln!(text, "<h3>{}</h3>", escaped(kind));
        if let Some(plot) = registrations::plot::over_batches(&record.rows, kind) {
            let svg = plot.svg()?;
            let file = format!("registrations-{kind}.svg");
            record::write(&folder.join(file), &plot::standalone(&svg))?;
            let _ = writeln!(text, "<figure>{svg}</figure>");
        }
        text += &table(&registrations::table::of_kind(&record.rows, kind));
    }
    let answers = registrations::table::answers(&record.rows);
    if !answers.is_empty() {
        let _ = writeln!(text, "<p>{}</p>\n<ul>", escaped(registrations::table::QUESTION));
        for line in answers {
            let _ = writeln!(text, "<li>{}</li>", escaped(&line));
        }
        text += "</ul>\n";
    }
    text += &kept(&targets::of_registrations(&record.rows));
    Ok(text)
}

fn ring_section(folder: &Path, record: &Record<ring::Row>) -> Result<String> {
    let mut text = "<h2>ring: pipes in a ring</h2>\n".to_owned();
    text += "<p>A task between each two pipes passes on what it reads, up to 64 bytes at a time; the \
             bytes in flight go round for some laps. A hop is one byte through one pipe. Each \
             subject has a process of its own, and all take turns. “read+write” knows where the \
             bytes are and never waits.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    let bars = ring::plot::bars(&record.rows);
    record::write(&folder.join("ring.svg"), &plot::standalone(&bars))?;
    let _ = writeln!(text, "<figure>{bars}</figure>");
    for (file, plot) in [
        ("ring-pipes.svg", ring::plot::over_total(&record.rows)),
        ("ring-in-flight.svg", ring::plot::over_share(&record.rows)),
    ] {
        let Some(plot) = plot else { continue };
        let svg = plot.svg()?;
        record::write(&folder.join(file), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    for ((total, in_flight), rows) in ring::table::points(&record.rows) {
        let _ = writeln!(text, "<h3>{}</h3>", ring::table::name(total, in_flight));
        text += &table(&ring::table::point(&rows));
    }
    text += &kept(&targets::of_ring(&record.rows));
    Ok(text)
}

fn herd_section(folder: &Path, record: &Record<herd::Row>) -> Result<String> {
    let mut text = "<h2>herd: many wait for one connection</h2>\n".to_owned();
    text += "<p>Processes wait for one listening socket (or engines of our runtime, in one process), \
             and a client connects without blocking: the time of that call holds the kernel's work \
             for all who wait. “Woken” counts how often they went back to sleep. Jain's index is 1 if \
             all got the same number of connections; “best” is what it could be with so few.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for dups_of in ["listener", "pipe"] {
        let Some(plot) = herd::plot::over_processes(&record.rows, dups_of) else { continue };
        let svg = plot.svg()?;
        let file = if dups_of == "pipe" { "herd-control.svg" } else { "herd.svg" };
        record::write(&folder.join(file), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&herd::table::herds(&record.rows));
    text += &kept(&targets::of_herd(&record.rows));
    Ok(text)
}

fn echo_section(folder: &Path, record: &Record<echo::Row>) -> Result<String> {
    let mut text = "<h2>echo: what a server takes for a request</h2>\n".to_owned();
    text += "<p>Each server sends back what it gets, on connections of which each has one short request under \
             way; every byte of every answer is checked. Measured is the processor time of the server's \
             process, which has a processor to itself; ratios are those of each round. “Generator” is the share \
             of its own processor that the load generator needs: at 100 % the server has to wait for it, finds \
             fewer requests at a time, and sleeps in between.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for kind in echo::plot::kinds(&record.rows) {
        let Some(plot) = echo::plot::over_connections(&record.rows, kind) else { continue };
        let svg = plot.svg()?;
        record::write(&folder.join(format!("echo-{kind}.svg")), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&echo::table::servers(&record.rows));
    text += &kept(&targets::of_echo(&record.rows));
    Ok(text)
}

fn relay_section(folder: &Path, record: &Record<relay::Row>) -> Result<String> {
    let mut text = "<h2>relay: what it takes to pass a connection on</h2>\n".to_owned();
    text += "<p>A relay stands between clients and an origin, in a process and on a processor of its own. \
             “connection” is a new connection for each request, which the origin closes after its answer; \
             “keep-alive” leaves connections open; “bulk” are long answers, which relays splice. Those \
             called “waits” do not speculate: they watch each direction before they try it. Calls are counted by \
             the relay itself, and by strace in another run, in which the relay is slower.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    if let Some(plot) = relay::plot::over_loads(&record.rows) {
        let svg = plot.svg()?;
        record::write(&folder.join("relay.svg"), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&relay::table::relays(&record.rows));
    text += &table(&relay::table::calls(&record.rows));
    text += &kept(&targets::of_relay(&record.rows));
    Ok(text)
}

fn http_section(folder: &Path, record: &Record<http::Row>) -> Result<String> {
    let mut text = "<h2>http: what a web server takes for a request</h2>\n".to_owned();
    text += "<p>hyper answers thirteen bytes over HTTP/1 on connections that stay open, each with one \
             request in flight; only the runtime below it differs. Measured is the processor time of the \
             server's process, which has a processor to itself. “raw-epoll” answers canned bytes and is \
             the lower bound. Requests per second depend on the load generator too.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    if let Some(plot) = http::plot::over_connections(&record.rows) {
        let svg = plot.svg()?;
        record::write(&folder.join("http.svg"), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&http::table::servers(&record.rows));
    text += &kept(&targets::of_http(&record.rows));
    Ok(text)
}

fn files_section(folder: &Path, record: &Record<files::Row>) -> Result<String> {
    let mut text = "<h2>files: what a server takes to send a file</h2>\n".to_owned();
    text += "<p>A file is asked for again and again on connections that stay open, each with one request under \
             way; every byte of every answer is checked. Measured is the processor time of the server's process, \
             which has a processor to itself; ratios are those of each round. “Generator” is the share of its own \
             processor that the load generator needs. Calls are those that strace sees in another run, in which \
             the server is slower.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for connections in files::plot::connections(&record.rows) {
        let Some(plot) = files::plot::over_bytes(&record.rows, connections) else { continue };
        let svg = plot.svg()?;
        record::write(&folder.join(format!("files-{connections}.svg")), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&files::table::servers(&record.rows));
    let calls = files::table::calls(&record.rows);
    if !calls.rows().is_empty() {
        text += &table(&calls);
    }
    text += &kept(&targets::of_files(&record.rows));
    Ok(text)
}

fn zombies_section(folder: &Path, record: &Record<zombies::Row>) -> Result<String> {
    let mut text = "<h2>zombies: connections that are silent</h2>\n".to_owned();
    text += "<p>A few clients ask and are answered; all other connections have asked once and keep silent. \
             Measured is the processor time of the server's process by request, and the time on the clock for \
             all requests; “/ none” is the ratio to the same server without zombies, round by round.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    for family in ["echo", "web"] {
        let Some(plot) = zombies::plot::over_zombies(&record.rows, family) else { continue };
        let svg = plot.svg()?;
        record::write(&folder.join(format!("zombies-{family}.svg")), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&zombies::table::servers(&record.rows));
    text += &kept(&targets::of_zombies(&record.rows));
    Ok(text)
}

fn idle_section(folder: &Path, record: &Record<idle::Row>) -> Result<String> {
    let mut text = "<h2>idle: connections that do nothing</h2>\n".to_owned();
    text += "<p>Bytes by connection, of the second half of the connections. User memory is what the server's \
             process has to itself; “left” what it has more than at its start after all connections were closed. \
             In a burst all clients of a half connect, then all ask, then all are answered. The kernel's memory is \
             that of both ends, and of whatever else the machine does.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    let bars = idle::plot::bars(&record.rows);
    record::write(&folder.join("idle.svg"), &plot::standalone(&bars))?;
    let _ = writeln!(text, "<figure>{bars}</figure>");
    text += &table(&idle::table::connections(&record.rows));
    text += &kept(&targets::of_idle(&record.rows));
    Ok(text)
}

fn sit_section(folder: &Path, record: &Record<sit::Row>) -> Result<String> {
    let mut text = "<h2>sit: idle connections and their babysitter</h2>\n".to_owned();
    text += "<p>Idle descriptors are watched by the loop's own epoll set (nested), a second thread or another \
             process. Of each figure there is that of the middle round, and the spread of all. “Main” is the \
             processor time of the main loop's thread, “sitter” that of the babysitter's thread or process.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    if let Some(plot) = sit::plot::over_batches(&record.rows) {
        let svg = plot.svg()?;
        record::write(&folder.join("sit.svg"), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    for (heading, rows) in sit::table::parts(&record.rows) {
        let _ = writeln!(text, "<h3>{}</h3>", escaped(heading));
        text += &table(&rows);
    }
    text += &kept(&targets::of_sit(&record.rows));
    Ok(text)
}

fn timers_section(folder: &Path, record: &Record<timers::Row>) -> Result<String> {
    let mut text = "<h2>timers: set, taken back, waited for</h2>\n".to_owned();
    text += "<p>Nanoseconds of processor time for each timer. All are set and then taken back, in the order \
             in which they were made or in another, or each before the next is set. That each was there \
             and is gone is checked by the wakers that the runtime holds.</p>\n";
    text += &environment(&record.environment, &record.parameters);
    if let Some(plot) = timers::plot::over_timers(&record.rows) {
        let svg = plot.svg()?;
        record::write(&folder.join("timers.svg"), &plot::standalone(&svg))?;
        let _ = writeln!(text, "<figure>{svg}</figure>");
    }
    text += &table(&timers::table::taken(&record.rows));
    text += "<p>A task waits for each and looks at the clock when it is over: how late that is. None is \
             early.</p>\n";
    text += &table(&timers::table::ending(&record.rows));
    text += &kept(&targets::of_timers(&record.rows));
    Ok(text)
}

fn kept(all: &[Target]) -> String {
    if all.is_empty() {
        return String::new();
    }
    format!("<h3>Targets</h3>\n{}", table(&targets::table(all)))
}

fn environment(
    here: &Environment,
    parameters: &serde_json::Map<String, serde_json::Value>,
) -> String {
    let mut text = "<dl>\n".to_owned();
    let mut item = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
        }
    };
    item("machine", &here.summary());
    item("date", &here.date);
    item("superpoll", &here.superpoll);
    item("commit", here.commit.as_deref().unwrap_or_default());
    item("descriptor limit", &here.descriptor_limit.to_string());
    item("mitigations", &here.mitigations.join("; "));
    for name in
        ["repetitions", "rounds", "warm_up_rounds_adaptive", "warm_up_rounds", "seed", "notes"]
    {
        match parameters.get(name) {
            Some(serde_json::Value::Array(list)) if list.is_empty() => {}
            Some(value) => item(&name.replace('_', " "), &value.to_string()),
            None => {}
        }
    }
    text + "</dl>\n"
}

fn table(table: &Table) -> String {
    let mut text = "<div class=\"wide\"><table><tr>".to_owned();
    let class = |column: usize| if table.is_name(column) { " class=\"name\"" } else { "" };
    for (column, cell) in table.heading().iter().enumerate() {
        let _ = write!(text, "<th{}>{}</th>", class(column), escaped(cell));
    }
    text += "</tr>\n";
    for row in table.rows() {
        text += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(text, "<td{}>{}</td>", class(column), escaped(cell));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
