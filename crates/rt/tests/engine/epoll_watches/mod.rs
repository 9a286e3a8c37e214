//! The watches of this process's epoll sets, from `/proc/self/fdinfo`.

/// Returns the number of watches of the file with this number (its inode): those with exclusive
/// wake-ups, and those without.
pub(crate) fn count(inode: u64) -> (usize, usize) {
    const EXCLUSIVE: u32 = 1 << 28;
    let inode = format!("ino:{inode:x}");
    let (mut exclusive, mut others) = (0, 0);
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
        // Another test may have closed it since.
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            if words.first() == Some(&"tfd:") && words.contains(&&*inode) {
                let events = u32::from_str_radix(words[3], 16).unwrap();
                *if events & EXCLUSIVE != 0 { &mut exclusive } else { &mut others } += 1;
            }
        }
    }
    (exclusive, others)
}
