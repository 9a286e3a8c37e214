//! A keeper that is treated as if it were another process: it receives open files, and holds
//! them.
//!
//! It runs in a thread here, which makes no difference to the other ends of its links: a descriptor
//! that is sent with a message arrives as a descriptor of its own.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use superpoll_keeper::{Control, Keeper, KeeperLink, Listener, Options};

/// The keeper, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RemoteKeeper {
    folder: PathBuf,
    control: Option<Control>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RemoteKeeper {
    /// Starts a keeper, which listens in a folder of its own.
    pub(crate) fn start() -> RemoteKeeper {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("superpoll-conformance-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder can be made in the temporary one");
        let path = folder.join("keeper");
        let mut keeper = Keeper::new(Options::default(), |_| {}).expect("an epoll set can be made");
        let listener = Listener::bind(&path).expect("a socket can be made there");
        keeper.listen(listener).expect("epoll watches a socket");
        let thread = std::thread::spawn(|| keeper.run());
        let session = u64::from(number) + 1;
        let control = Control::connect(&path, session).expect("it listens");
        RemoteKeeper { folder, control: Some(control), thread: Some(thread) }
    }

    /// Opens a link to it.
    pub(crate) fn link(&self) -> KeeperLink {
        let control = self.control.as_ref().expect("it is there until this is dropped");
        control.link().expect("it answers")
    }
}

impl Drop for RemoteKeeper {
    fn drop(&mut self) {
        if let Some(control) = self.control.take() {
            let _ = control.bye();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
