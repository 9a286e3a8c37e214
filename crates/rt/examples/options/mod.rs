//! The parts that all examples share: two options, a runtime, a listener, and one readable line if
//! something is wrong.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use superpoll_rt::net::TcpListener;
use superpoll_rt::{BackendKind, Runtime};

type Failure = Box<dyn std::error::Error>;

/// Listens on the address in the options, and runs `serve` on the back-end that they name. `about`
/// is the first line of the help text.
pub(crate) fn run<F>(about: &str, serve: impl FnOnce(TcpListener) -> F) -> ExitCode
where
    F: Future<Output = io::Result<()>>,
{
    match start(about, serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start<F>(about: &str, serve: impl FnOnce(TcpListener) -> F) -> Result<(), Failure>
where
    F: Future<Output = io::Result<()>>,
{
    let Some((listen, backend)) = options(about)? else { return Ok(()) };
    let mut builder = Runtime::builder();
    if let Some(backend) = backend {
        builder = builder.backend(backend);
    }
    let runtime = builder.build()?;
    runtime.block_on(async {
        let bound = TcpListener::bind(listen).await;
        let listener = bound.map_err(in_vain(format!("listening on {listen}")))?;
        println!("listening on {}", listener.local_addr()?);
        Ok(serve(listener).await?)
    })
}

/// Returns the options, or nothing if help was asked for.
fn options(about: &str) -> Result<Option<(SocketAddr, Option<BackendKind>)>, Failure> {
    use lexopt::Arg;
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut backend = None;
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("listen") => {
                let value = arguments.value()?;
                let Some(address) = value.to_str().and_then(|text| text.parse().ok()) else {
                    return Err(format!(
                        "--listen {}: not an address and port such as 127.0.0.1:8080",
                        value.display()
                    )
                    .into());
                };
                listen = address;
            }
            Arg::Long("backend") => {
                let value = arguments.value()?.to_string_lossy().into_owned();
                backend = Some(value.parse().map_err(in_vain(format!("--backend {value}")))?);
            }
            Arg::Short('h') | Arg::Long("help") => {
                println!(
                    "{about}\n\n\
                     --listen ADDRESS:PORT  where to listen (127.0.0.1 and any free port)\n\
                     --backend NAME         {} (SUPERPOLL_BACKEND, else adaptive)",
                    BackendKind::names()
                );
                return Ok(None);
            }
            other => return Err(format!("{}; --help lists the options", other.unexpected()).into()),
        }
    }
    Ok(Some((listen, backend)))
}

fn in_vain<E: Display>(what: String) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
