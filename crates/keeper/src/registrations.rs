//! The descriptors that a keeper watches or holds.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::FileType;
use slab::Slab;
use zeroize::Zeroizing;

use crate::protocol::Watching;
use crate::sys;

/// The events that make the keeper drop an orphan.
const GONE: EventFlags = EventFlags::HUP.union(EventFlags::ERR);

/// A descriptor as it was given.
#[derive(Debug)]
pub(crate) enum Handle {
    /// A number; the descriptor is the loop's.
    Number(i32),
    /// A descriptor of the keeper's own.
    File(OwnedFd),
}

#[derive(Debug)]
struct Registration {
    handle: Handle,
    /// The identity of the socket, for descriptors of the keeper's own. Other files cannot be
    /// told apart: both ends of a pipe are one inode, and all event counters are.
    file: Option<(u64, u64)>,
    session: u64,
    /// The link that it came on, or `None` for an orphan.
    link: Option<usize>,
    key: u64,
    events: u32,
    /// It may have keys in it, and is overwritten when it is dropped.
    state: Zeroizing<Vec<u8>>,
    /// Whether a successor was given it, and may have done anything with it.
    handed_over: bool,
    /// Whether its loop is being notified. A file that lives on in a duplicate, after the number
    /// that a thread has named was closed, keeps a registration in the kernel that cannot be
    /// removed. That registration may be mistaken for another one, once.
    is_reported: bool,
}

/// All registrations, and the epoll set that watches them.
#[derive(Debug)]
pub(crate) struct Registrations {
    epoll: OwnedFd,
    all: Slab<Registration>,
    by_key: HashMap<(usize, u64), usize>,
    by_file: HashMap<(u64, u64), usize>,
    /// The number of registrations of each link that are not orphans. Counted only here, where
    /// registrations come and go.
    by_link: Vec<u64>,
    orphans: usize,
}

/// The meaning of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wakeup {
    /// The loop of this link is to be notified, under this key; after that the registration is to
    /// be [removed](Registrations::remove), so that the waiting loop comes first.
    Report(usize, u64),
    /// An orphan has hung up, and is closed.
    Gone,
    /// The event needs no action.
    Ignored,
}

impl Handle {
    fn borrow(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Handle::Number(number) => sys::by_number(*number),
            Handle::File(file) => Some(file.as_fd()),
        }
    }
}

impl Registrations {
    pub(crate) fn new(epoll: OwnedFd) -> Registrations {
        Registrations {
            epoll,
            all: Slab::new(),
            by_key: HashMap::new(),
            by_file: HashMap::new(),
            by_link: Vec::new(),
            orphans: 0,
        }
    }

    pub(crate) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    /// Returns the number of descriptors that are watched or held for a link.
    pub(crate) fn count(&self, link: usize) -> u64 {
        self.by_link.get(link).copied().unwrap_or(0)
    }

    /// Removes a descriptor from the count of a link.
    fn leave_link(&mut self, link: usize, key: u64) {
        self.by_key.remove(&(link, key));
        if let Some(count) = self.by_link.get_mut(link) {
            *count -= 1;
        }
    }

    /// Watches a descriptor for a link. It replaces a registration of the same key, and an orphan
    /// that is the same socket.
    pub(crate) fn insert(
        &mut self,
        link: usize,
        session: u64,
        watching: &Watching<'_>,
        handle: Handle,
    ) -> io::Result<()> {
        let file = match &handle {
            Handle::Number(_) => None,
            Handle::File(file) => {
                let found = rustix::fs::fstat(file)?;
                let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
                is_socket.then_some((found.st_dev, found.st_ino))
            }
        };
        self.forget(link, watching.key);
        if let Some(&known) = file.as_ref().and_then(|file| self.by_file.get(file))
            && self.all.get(known).is_some_and(|known| known.link.is_none())
        {
            self.remove(known);
        }
        let place = self.all.vacant_entry();
        let index = place.key();
        if watching.events != 0 {
            let Some(descriptor) = handle.borrow() else {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::BADF.raw_os_error()));
            };
            let flags = EventFlags::from_bits_retain(watching.events)
                | EventFlags::ONESHOT
                | EventFlags::RDHUP;
            epoll::add(&self.epoll, descriptor, EventData::new_u64(index as u64), flags)?;
        }
        place.insert(Registration {
            handle,
            file,
            session,
            link: Some(link),
            key: watching.key,
            events: watching.events,
            state: Zeroizing::new(watching.state.to_vec()),
            handed_over: false,
            is_reported: false,
        });
        self.by_key.insert((link, watching.key), index);
        if self.by_link.len() <= link {
            self.by_link.resize(link + 1, 0);
        }
        self.by_link[link] += 1;
        self.by_file.extend(file.map(|file| (file, index)));
        Ok(())
    }

    /// Forgets the registration at a place.
    pub(crate) fn remove(&mut self, index: usize) {
        let Some(gone) = self.all.try_remove(index) else { return };
        if gone.events != 0
            && let Some(descriptor) = gone.handle.borrow()
        {
            // The number may mean another file by now, which is not in the set: `ENOENT`.
            let _ = epoll::delete(&self.epoll, descriptor);
        }
        match gone.link {
            Some(link) => self.leave_link(link, gone.key),
            None => self.orphans -= 1,
        }
        if let Some(file) = gone.file
            && self.by_file.get(&file) == Some(&index)
        {
            self.by_file.remove(&file);
        }
    }

    /// Forgets the registration of a key; false if there is none.
    pub(crate) fn forget(&mut self, link: usize, key: u64) -> bool {
        let known = self.by_key.get(&(link, key)).copied();
        known.map(|index| self.remove(index)).is_some()
    }

    fn remove_if(&mut self, is_meant: impl Fn(&Registration) -> bool) {
        let meant = self.all.iter().filter(|(_, registration)| is_meant(registration));
        let meant: Vec<usize> = meant.map(|(index, _)| index).collect();
        meant.into_iter().for_each(|index| self.remove(index));
    }

    /// Forgets all registrations of a link.
    pub(crate) fn forget_link(&mut self, link: usize) {
        self.remove_if(|registration| registration.link == Some(link));
    }

    /// Forgets all orphans of a server. Descriptors on its links that have not ended are still
    /// watched for it.
    pub(crate) fn forget_session(&mut self, session: u64) {
        self.remove_if(|registration| {
            registration.link.is_none() && registration.session == session
        });
    }

    /// Forgets all orphans.
    pub(crate) fn forget_orphans(&mut self) {
        self.remove_if(|registration| registration.link.is_none());
    }

    /// Forgets the orphans of links that a server has given up. Orphans that it was handed, and has
    /// not settled yet, were on no link of its own and stay.
    pub(crate) fn forget_orphans_of(&mut self, session: u64) {
        self.remove_if(|registration| {
            registration.link.is_none()
                && registration.session == session
                && !registration.handed_over
        });
    }

    /// Whether there is a registration that a server left, or that it was handed.
    pub(crate) fn has_any_of(&self, session: u64) -> bool {
        self.all.iter().any(|(_, registration)| registration.session == session)
    }

    /// Returns the places of descriptors that are only held, whichever server has left them.
    pub(crate) fn held(&self) -> Vec<usize> {
        let held = self.all.iter().filter(|(_, registration)| registration.events == 0);
        held.map(|(index, _)| index).collect()
    }

    /// Forgets the orphans that were handed to a successor.
    pub(crate) fn forget_handed_over(&mut self) {
        self.remove_if(|registration| registration.link.is_none() && registration.handed_over);
    }

    /// Turns the registrations of a link into orphans. Descriptors that were named by number end
    /// with their thread.
    pub(crate) fn orphan_link(&mut self, link: usize) {
        self.remove_if(|registration| {
            registration.link == Some(link) && matches!(registration.handle, Handle::Number(_))
        });
        self.orphan_if(|registration| registration.link == Some(link));
    }

    /// Turns the registrations of all links of a server into orphans.
    pub(crate) fn orphan_session(&mut self, session: u64) {
        self.orphan_if(|registration| registration.session == session);
    }

    fn orphan_if(&mut self, is_meant: impl Fn(&Registration) -> bool) {
        let mut left = Vec::new();
        for (index, registration) in &mut self.all {
            if is_meant(registration)
                && let Some(link) = registration.link.take()
            {
                left.push((link, registration.key));
                self.by_file.extend(registration.file.map(|file| (file, index)));
                self.orphans += 1;
            }
        }
        left.into_iter().for_each(|(link, key)| self.leave_link(link, key));
    }

    /// Handles an event of a registration.
    pub(crate) fn handle_event(&mut self, index: usize, found: EventFlags) -> Wakeup {
        let Some(registration) = self.all.get_mut(index) else { return Wakeup::Ignored };
        if registration.is_reported {
            return Wakeup::Ignored;
        }
        let Some(link) = registration.link else {
            let half = found.contains(EventFlags::RDHUP);
            let unread = registration.handle.borrow().map(rustix::io::ioctl_fionread);
            let has_asked = unread.is_some_and(|unread| unread.is_ok_and(|unread| unread > 0));
            if found.intersects(GONE) || (half && !has_asked) {
                self.remove(index);
                return Wakeup::Gone;
            }
            // The client has sent bytes, which its next server will read. From here on only its end
            // matters, and if it has closed its sending side, only its end in both directions.
            self.arm(index, if half { EventFlags::empty() } else { EventFlags::RDHUP });
            return Wakeup::Ignored;
        };
        let wanted = EventFlags::from_bits_retain(registration.events);
        if !found.intersects(wanted | EventFlags::HUP | EventFlags::ERR) {
            // Half a hang-up, which ends an orphan, but which this loop has not asked for.
            self.arm(index, wanted);
            return Wakeup::Ignored;
        }
        registration.is_reported = true;
        Wakeup::Report(link, registration.key)
    }

    fn arm(&self, index: usize, flags: EventFlags) {
        if let Some(descriptor) = self.all.get(index).and_then(|one| one.handle.borrow()) {
            let data = EventData::new_u64(index as u64);
            let _ = epoll::modify(&self.epoll, descriptor, data, flags | EventFlags::ONESHOT);
        }
    }

    /// Returns the link of the registration at a place.
    pub(crate) fn link(&self, index: usize) -> Option<usize> {
        self.all.get(index)?.link
    }

    /// Keeps a registration that became ready: the loop that was to be notified has gone.
    pub(crate) fn put_back(&mut self, index: usize) {
        if let Some(registration) = self.all.get_mut(index) {
            registration.is_reported = false;
            self.arm(index, EventFlags::RDHUP);
        }
    }

    /// Marks all orphans as handed over to a successor, and returns their places.
    pub(crate) fn mark_handed_over(&mut self) -> Vec<usize> {
        let orphans = self.all.iter_mut().filter(|(_, registration)| registration.link.is_none());
        let mark = |(index, registration): (usize, &mut Registration)| {
            registration.handed_over = true;
            index
        };
        orphans.map(mark).collect()
    }

    /// Moves the orphans that were handed over, now that all are sent, to the session of their
    /// successor.
    pub(crate) fn assign_to(&mut self, session: u64) {
        let handed_over = self.all.iter_mut().filter(|(_, one)| one.handed_over);
        handed_over.for_each(|(_, registration)| registration.session = session);
    }

    /// Unmarks all orphans: the successor has gone before it was settled, and they wait for another
    /// one.
    pub(crate) fn unmark_handed_over(&mut self) {
        for (_, registration) in &mut self.all {
            registration.handed_over = false;
        }
    }

    /// Returns the descriptor and the state at a place, if it was marked by
    /// [`mark_handed_over`](Registrations::mark_handed_over) or, with `held`, is only held. Another
    /// registration may have come into the place since.
    pub(crate) fn get_for_transfer(
        &self,
        index: usize,
        held: bool,
    ) -> Option<(BorrowedFd<'_>, &[u8])> {
        let registration = self.all.get(index)?;
        let is_meant = if held { registration.events == 0 } else { registration.handed_over };
        is_meant.then_some((registration.handle.borrow()?, &registration.state))
    }

    /// Counts everything again, and compares.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let orphans = self.all.iter().filter(|(_, registration)| registration.link.is_none());
        assert_eq!(orphans.count(), self.orphans, "orphans");
        let mut by_link = vec![0; self.by_link.len()];
        for (index, registration) in &self.all {
            assert!(!registration.is_reported, "reported, and still here");
            if let Some(link) = registration.link {
                by_link[link] += 1;
                assert_eq!(self.by_key.get(&(link, registration.key)), Some(&index));
            }
        }
        assert_eq!(by_link, self.by_link);
        assert_eq!(by_link.iter().sum::<u64>(), self.by_key.len() as u64);
        for (file, index) in &self.by_file {
            assert_eq!(self.all.get(*index).and_then(|one| one.file), Some(*file));
        }
    }
}
