//! The limits of control groups.
//!
//! A process is in a group of each tree (one tree in version 2, one for each controller in version
//! 1), and every group from its own up to the root may set a limit. Only limits whose files are
//! called `CONTROLLER.max` and `CONTROLLER.current` are read: all of version 2, and `pids` of
//! version 1.

use std::path::{Path, PathBuf};

use crate::environment::line;

/// A limit and how much of it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    /// So much in all.
    pub most: u64,
    /// The amount in use.
    pub used: u64,
}

impl Limit {
    /// Returns the amount that is left.
    pub(crate) fn left(self) -> u64 {
        self.most.saturating_sub(self.used)
    }
}

/// Returns the limits that this process's groups and those above them set for a controller (`pids`,
/// `memory`).
pub(crate) fn limits(controller: &str) -> Vec<Limit> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folders = folders(&groups, controller);
    folders.iter().filter_map(|folder| limit(folder, controller)).collect()
}

/// Returns the limit of a group; `None` if the group sets none.
fn limit(folder: &Path, controller: &str) -> Option<Limit> {
    let number = |name: &str| -> Option<u64> {
        line(&folder.join(format!("{controller}.{name}")).to_string_lossy())?.parse().ok()
    };
    Some(Limit { most: number("max")?, used: number("current").unwrap_or(0) })
}

/// Returns the folders that may limit a controller's resource, by `/proc/self/cgroup` (cgroups(7)):
/// a line for each tree, with its number, its controllers and the group's path.
fn folders(groups: &str, controller: &str) -> Vec<PathBuf> {
    let roots = ["", "unified", controller].map(|tree| Path::new("/sys/fs/cgroup").join(tree));
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if !controllers.is_empty() && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        for group in Path::new(path).ancestors() {
            let group = group.strip_prefix("/").unwrap_or(group);
            folders.extend(roots.iter().map(|root| root.join(group)));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_those_above_are_looked_at_in_either_version() {
        let folders = folders("8:pids:/a/b\n4:memory:/x\n0::/c\n", "pids");
        for folder in ["/sys/fs/cgroup/pids/a/b", "/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/c"] {
            assert!(folders.contains(&PathBuf::from(folder)), "{folder} in {folders:?}");
        }
        assert!(!folders.iter().any(|folder| folder.ends_with("x")));
        assert!(super::folders("nonsense", "pids").is_empty());
    }

    #[test]
    fn a_group_without_a_limit_does_not_limit() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(limit(folder.path(), "pids"), None);
        write("pids.max", "max\n");
        write("pids.current", "5\n");
        assert_eq!(limit(folder.path(), "pids"), None);
        write("pids.max", "12\n");
        let found = limit(folder.path(), "pids").unwrap();
        assert_eq!((found, found.left()), (Limit { most: 12, used: 5 }, 7));
    }
}
