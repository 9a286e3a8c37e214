//! In the place of the screen, where the feature `top` is off.

use std::error::Error;

use super::Options;

const ABSENT: &str = "this superpoll was built without the screen that follows a process, expected \
                      --once, the live page at /_superpoll/ of the server, or a build with the \
                      feature top: cargo install --path crates/cli --features top";

pub(super) fn follow(_options: &Options) -> Result<(), Box<dyn Error>> {
    Err(ABSENT.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_build_without_the_screen_says_what_there_is_instead() {
        let Arguments { options } = Arguments::parse_from(["top"]);
        let error = follow(&options).unwrap_err().to_string();
        for part in ["--once", "/_superpoll/", "--features top"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
