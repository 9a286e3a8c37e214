//! Numbers of connections and requests in words, the same in the log, in answers to commands, and
//! in their output.

/// Returns a number with its noun, `1 connection` or `2 connections`.
pub(crate) fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

/// Returns the numbers of connections and requests that a server has still open. A program that
/// counts no requests has `None` of them.
pub(crate) fn open_work(connections: u64, requests: Option<u64>) -> String {
    let connections = count(connections, "connection");
    match requests {
        None => connections,
        Some(requests) => format!("{connections}, {} under way", count(requests, "request")),
    }
}

/// Returns how many connections a successor continues with, and how many end with this process.
pub(crate) fn handed_over(elsewhere: u64, here: u64) -> String {
    let go = if elsewhere == 1 { "goes" } else { "go" };
    let end = if here == 1 { "ends" } else { "end" };
    format!("{} {go} on there, {here} {end} here", count(elsewhere, "connection"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(open_work(12, Some(3)), "12 connections, 3 requests under way");
        assert_eq!(open_work(1, Some(1)), "1 connection, 1 request under way");
        assert_eq!(open_work(0, None), "0 connections");
        assert_eq!(handed_over(201, 1), "201 connections go on there, 1 ends here");
        assert_eq!(handed_over(1, 0), "1 connection goes on there, 0 end here");
    }
}
