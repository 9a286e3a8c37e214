//! Certificates whose files change while the server runs.
//!
//! Programs that renew certificates replace files in several ways: they write into the file, rename
//! another file over it, or point a symbolic link on the way to it elsewhere (certbot, volumes of
//! Kubernetes). A look at the file through its path finds all of these alike, which is why there is
//! no inotify here: it watches one directory entry, and would have to follow every link on the way.
//! A look costs two calls for each certificate every two seconds, on a thread that may block.
//!
//! The certificate and its key are two files, and neither is written in one step. They are read
//! when both have been the same at two looks in a row. If they are not usable then, the former
//! certificate stays, one event says why, and the next attempt is made when a file has changed
//! again.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use superpoll_config::{CertificateFiles, Tls};
use superpoll_rt::{JoinError, blocking, time};

use super::{Certificate, CertificateError, CertificateStore};
use crate::log::{Event, Level, Report};
use crate::unix_time::unix_time;

/// A certificate whose files have changed, or the reason why it is not used; `None` without a
/// change.
type Look = Option<Result<Certificate, CertificateError>>;

/// The time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(2);

/// The state of a file that changes with its content: device, inode, size, and the times of the
/// last change of the content and of the inode. The last one changes even if a program sets the
/// others.
type FileState = (u64, u64, u64, (i64, i64), (i64, i64));

fn state_of(path: &Path) -> Option<FileState> {
    let state = |found: Metadata| {
        let (content, inode) =
            ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
        (found.dev(), found.ino(), found.size(), content, inode)
    };
    std::fs::metadata(path).ok().map(state)
}

/// The files of a certificate, and the store of the listener or upstream that uses them.
#[derive(Debug)]
struct WatchedFiles {
    files: CertificateFiles,
    store: Arc<CertificateStore>,
    /// The state of both files at the last look.
    seen: [Option<FileState>; 2],
    /// Their state when they were last read.
    read: [Option<FileState>; 2],
    /// Whether they could not be read the last time, for a reason that may pass.
    is_lacking: bool,
    /// When the certificate that was read begins to be valid, if clients would still refuse it.
    valid_from: Option<SystemTime>,
}

impl WatchedFiles {
    fn states(files: &CertificateFiles) -> [Option<FileState>; 2] {
        [state_of(&files.certificate), state_of(&files.key)]
    }

    /// Reads the files if they have changed and have not changed since the last look, or if the
    /// certificate that was read before is valid now.
    fn look(&mut self, time: SystemTime) -> Look {
        let now = WatchedFiles::states(&self.files);
        let is_settled = now == self.seen;
        self.seen = now;
        let is_valid_now = self.valid_from.is_some_and(|from| from <= time);
        let is_due = now != self.read || self.is_lacking || is_valid_now;
        if !is_settled || !is_due {
            return None;
        }
        self.read = now;
        self.valid_from = None;
        let was_lacking = std::mem::take(&mut self.is_lacking);
        let read = match Certificate::read(&self.files) {
            Ok(read) => read,
            Err(error) if error.may_pass() => {
                // The files are due until they could be read, and the lack is reported once.
                self.is_lacking = true;
                return (!was_lacking).then_some(Err(error));
            }
            Err(error) => return Some(Err(error)),
        };
        let Some(source) = read.refused_at(time) else { return Some(Ok(read)) };
        self.valid_from = Some(read.facts.not_before).filter(|from| *from > time);
        let certificate = self.files.certificate.display().to_string();
        Some(Err(CertificateError::Untimely { certificate, source }))
    }
}

/// The certificates of a configuration by their files, so that another configuration need not read
/// those again that have not changed.
#[derive(Default, Debug)]
pub struct KnownCertificates(HashMap<CertificateFiles, KnownCertificate>);

#[derive(Debug)]
struct KnownCertificate {
    /// The state of the files before they were read.
    states: [Option<FileState>; 2],
    certificate: Certificate,
}

/// How long after a change of a file another change may leave the same times: some file systems
/// have times of whole seconds.
const GRANULARITY: Duration = Duration::from_secs(2);

impl KnownCertificates {
    /// Returns the certificate of some files, if it is known and they have not changed since.
    fn get(
        &self,
        files: &CertificateFiles,
        states: &[Option<FileState>; 2],
    ) -> Option<Certificate> {
        let known = self.0.get(files)?;
        let is_same = states.iter().all(Option::is_some) && known.states == *states;
        is_same.then(|| known.certificate.clone())
    }

    /// Knows the certificate of some files that were in these states before they were read. Files
    /// that have just changed are not known: another change might leave the same state.
    fn insert(
        &mut self,
        files: &CertificateFiles,
        states: [Option<FileState>; 2],
        certificate: Certificate,
    ) {
        let now = unix_time();
        let settled = now.saturating_sub(GRANULARITY).as_secs();
        let has_settled = |state: &Option<FileState>| {
            state.is_some_and(|(.., (changed, _))| {
                u64::try_from(changed).is_ok_and(|at| at < settled)
            })
        };
        if states.iter().all(has_settled) {
            self.0.insert(files.clone(), KnownCertificate { states, certificate });
        }
    }
}

/// The certificates of a server, as its operator sees them.
#[derive(Default, Debug)]
pub struct CertificateStatus {
    stores: Mutex<Vec<Arc<CertificateStore>>>,
    failures: AtomicU64,
}

impl CertificateStatus {
    /// Replaces the listeners' certificates that are described.
    pub fn describe(&self, stores: Vec<Arc<CertificateStore>>) {
        *self.stores.lock().unwrap_or_else(PoisonError::into_inner) = stores;
    }

    /// Counts a certificate that could not be renewed.
    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a certificate could not be renewed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the end of each certificate in seconds since 1970, by its first name. Of several
    /// with the same name the one that ends first counts.
    pub fn ends(&self) -> std::collections::BTreeMap<String, u64> {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut ends = std::collections::BTreeMap::new();
        for state in stores.iter().flat_map(|store| store.states()) {
            let end = state.not_after.duration_since(SystemTime::UNIX_EPOCH);
            let end = end.map_or(0, |end| end.as_secs());
            ends.entry(state.name)
                .and_modify(|known: &mut u64| *known = end.min(*known))
                .or_insert(end);
        }
        ends
    }
}

/// The watch over the files of a configuration's certificates. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    ended: Arc<AtomicBool>,
    files: Vec<WatchedFiles>,
    /// The certificates of the configuration before.
    before: Arc<KnownCertificates>,
    known: KnownCertificates,
}

impl Watch {
    /// Creates the watch of a configuration that comes after one with these certificates.
    pub fn after(before: Arc<KnownCertificates>) -> Watch {
        Watch { ended: Arc::default(), files: Vec::new(), before, known: Default::default() }
    }

    /// Returns the certificates that were loaded, for the watch of the next configuration.
    pub fn known(&mut self) -> KnownCertificates {
        self.before = Arc::default();
        std::mem::take(&mut self.known)
    }

    /// Loads the certificates of a listener into its store, and watches their files from now on.
    ///
    /// # Errors
    ///
    /// A certificate cannot be used.
    pub fn load(
        &mut self,
        tls: &Tls,
        store: &Arc<CertificateStore>,
    ) -> Result<(), CertificateError> {
        for files in &tls.certificates {
            self.load_files(files, store)?;
        }
        Ok(())
    }

    /// Loads a certificate into a store, and watches its files from now on.
    ///
    /// # Errors
    ///
    /// The certificate cannot be used.
    pub fn load_files(
        &mut self,
        files: &CertificateFiles,
        store: &Arc<CertificateStore>,
    ) -> Result<(), CertificateError> {
        // A change between this and the reading is found by the first look.
        let states = WatchedFiles::states(files);
        let certificate = match self.before.get(files, &states) {
            Some(known) => known,
            None => Certificate::read(files)?,
        };
        self.known.insert(files, states, certificate.clone());
        store.install(&files.label(), certificate);
        let (files, store) = (files.clone(), store.clone());
        self.files.push(WatchedFiles {
            files,
            store,
            seen: states,
            read: states,
            is_lacking: false,
            valid_from: None,
        });
        Ok(())
    }

    /// Returns the task that looks at the files until the watch is dropped.
    pub fn task(
        &mut self,
        report: Report,
        status: Arc<CertificateStatus>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let files = std::mem::take(&mut self.files);
        let ended = self.ended.clone();
        (!files.is_empty()).then_some(async move {
            let files = Arc::new(Mutex::new(files));
            let mut is_told = false;
            loop {
                time::sleep(INTERVAL).await;
                if ended.load(Ordering::Relaxed) {
                    // The certificates of thousands of names take long to be freed.
                    return blocking::unblock(move || drop(files)).detach();
                }
                let found = match look_at_all(&files).await {
                    Ok(found) => found,
                    Err(JoinError::NoThread(error)) => {
                        // The next look may get a thread.
                        if !std::mem::replace(&mut is_told, true) {
                            let what =
                                format!("looking at the files of certificates waits: {error}");
                            report(&Event::new(Level::Warning, "certificates-unwatched", what));
                        }
                        continue;
                    }
                    Err(_) => {
                        let what =
                            "certificates are no longer renewed: looking at their files failed";
                        report(&Event::new(Level::Error, "certificates-unwatched", what));
                        return;
                    }
                };
                is_told = false;
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                for (files, found) in files.iter().zip(found) {
                    if let Some(found) = found {
                        apply(files, found, &report, &status);
                    }
                }
            }
        })
    }
}

/// Looks at the files of all certificates, on a thread that may wait for the disk. A look that gets
/// no thread loses nothing.
async fn look_at_all(files: &Arc<Mutex<Vec<WatchedFiles>>>) -> Result<Vec<Look>, JoinError> {
    let (files, now) = (files.clone(), SystemTime::now());
    blocking::unblock(move || {
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter_mut().map(|files| files.look(now)).collect()
    })
    .await
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Uses a certificate that was read again, or reports why it is not used.
fn apply(
    files: &WatchedFiles,
    found: Result<Certificate, CertificateError>,
    report: &Report,
    status: &CertificateStatus,
) {
    let name = files.files.label();
    let event = match found {
        Ok(certificate) => {
            let until = humantime::format_rfc3339_seconds(certificate.not_after()).to_string();
            files.store.install(&name, certificate);
            let what =
                format!("the certificate {name} has changed and is in use, valid until {until}");
            Event::new(Level::Notice, "certificate-loaded", what).with("until", until)
        }
        Err(error) => {
            status.count_failure();
            let until = match error.may_pass() {
                true => "it can be read",
                false => "the files change",
            };
            let what = format!("{error}; the former certificate stays in use until {until}");
            Event::new(Level::Warning, "certificate-failed", what)
        }
    };
    report(&event.with("certificate", name));
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use superpoll_test_support::{Alone, alone};

    use super::*;

    fn write(folder: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(folder.join("a.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("a.key"), made.signing_key.serialize_pem()).unwrap();
    }

    fn watched(folder: &Path) -> (WatchedFiles, Arc<CertificateStore>) {
        let files =
            CertificateFiles { certificate: folder.join("a.pem"), key: folder.join("a.key") };
        let tls = Tls {
            certificates: vec![files],
            automatic: None,
            min_version: Default::default(),
            client: None,
            alpn: Vec::new(),
        };
        let (mut watch, store) = (Watch::after(Arc::default()), CertificateStore::new(None));
        watch.load(&tls, &store).unwrap();
        (watch.files.pop().unwrap(), store)
    }

    #[test]
    fn files_are_read_once_they_have_settled() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a.example");
        let (mut files, _) = watched(root);
        for _ in 0..3 {
            assert!(files.look(SystemTime::now()).is_none());
        }
        write(root, "longer.example");
        assert!(files.look(SystemTime::now()).is_none());
        std::fs::write(root.join("a.key"), "half").unwrap();
        assert!(files.look(SystemTime::now()).is_none());
        let error = files.look(SystemTime::now()).unwrap().unwrap_err().to_string();
        assert!(
            error.ends_with("a.key has no private key, expected a PEM file with -----BEGIN"),
            "{error}"
        );
        assert!(files.look(SystemTime::now()).is_none());
        std::fs::remove_file(root.join("a.key")).unwrap();
        assert!(files.look(SystemTime::now()).is_none());
        assert!(
            files
                .look(SystemTime::now())
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("cannot read the private key")
        );
        write(root, "other.example");
        assert!(files.look(SystemTime::now()).is_none());
        assert_eq!(files.look(SystemTime::now()).unwrap().unwrap().names(), ["other.example"]);
        assert!(files.look(SystemTime::now()).is_none());
    }

    /// In a process of its own, whose limit is lowered.
    #[test]
    fn files_that_could_not_be_read_for_a_lack_are_read_again() {
        Alone::default().under("ulimit -n 64").run(|| {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), "a.example");
            let (mut files, _) = watched(folder.path());
            write(folder.path(), "renewed.example");
            assert!(files.look(SystemTime::now()).is_none());
            let all: Vec<_> = std::iter::repeat_with(|| std::fs::File::open("/dev/null"))
                .map_while(Result::ok)
                .take(64)
                .collect();
            assert!(all.len() < 64, "the limit is in force");
            let error = files.look(SystemTime::now()).unwrap().unwrap_err().to_string();
            assert!(error.contains("Too many open files"), "{error}");
            assert!(files.look(SystemTime::now()).is_none(), "it is reported once");
            drop(all);
            assert_eq!(
                files.look(SystemTime::now()).unwrap().unwrap().names(),
                ["renewed.example"]
            );
            assert!(files.look(SystemTime::now()).is_none());
        });
    }

    /// In a process of its own, whose limit leaves no room for the stack of a thread.
    #[test]
    fn files_that_no_thread_could_look_at_are_looked_at_again() {
        alone(|| {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), "a.example");
            let (watched, _) = watched(folder.path());
            let files = Arc::new(Mutex::new(vec![watched]));
            let runtime = superpoll_rt::Runtime::new().unwrap();
            let look = || runtime.block_on(look_at_all(&files));
            write(folder.path(), "renewed.example");
            let limit = getrlimit(Resource::As);
            let used = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: usize = used.split(' ').next().unwrap().parse().unwrap();
            let current = Some((pages * crate::sys::page_size() + (1 << 20)) as u64);
            setrlimit(Resource::As, Rlimit { current, ..limit }).unwrap();
            for _ in 0..3 {
                assert!(matches!(look(), Err(JoinError::NoThread(_))));
            }
            setrlimit(Resource::As, limit).unwrap();
            assert!(look().unwrap()[0].is_none(), "it has changed just now");
            assert_eq!(look().unwrap().remove(0).unwrap().unwrap().names(), ["renewed.example"]);
        });
    }

    #[test]
    fn a_link_that_points_elsewhere_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["one", "two"] {
            std::fs::create_dir(root.join(name)).unwrap();
            write(&root.join(name), &format!("{name}.example"));
        }
        std::os::unix::fs::symlink("one", root.join("live")).unwrap();
        let (mut files, _) = watched(&root.join("live"));
        std::os::unix::fs::symlink("two", root.join("next")).unwrap();
        std::fs::rename(root.join("next"), root.join("live")).unwrap();
        assert!(files.look(SystemTime::now()).is_none());
        assert_eq!(files.look(SystemTime::now()).unwrap().unwrap().names(), ["two.example"]);
    }

    #[test]
    fn a_certificate_of_the_future_is_used_once_it_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a.example");
        let (mut files, _) = watched(root);
        let mut params = rcgen::CertificateParams::new(["new.example".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2090, 1, 1), rcgen::date_time_ymd(2091, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(root.join("a.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(root.join("a.key"), key.serialize_pem()).unwrap();
        let year = |years: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(years * 31_556_952);
        assert!(files.look(year(60)).is_none());
        let error = files.look(year(60)).unwrap().unwrap_err().to_string();
        assert!(error.contains("is valid from 2090-01-01T00:00:00Z on"), "{error}");
        assert!(files.look(year(60)).is_none());
        assert_eq!(
            files.look(year(121) - Duration::from_secs(86_400 * 300)).unwrap().unwrap().names(),
            ["new.example"]
        );
        assert!(files.look(year(121)).is_none());
    }

    #[test]
    fn certificates_are_read_again_only_if_their_files_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a.example");
        let files = CertificateFiles { certificate: root.join("a.pem"), key: root.join("a.key") };
        // Each is the certificate of the next configuration.
        let load = |before: KnownCertificates| {
            let (mut watch, store) = (Watch::after(Arc::new(before)), CertificateStore::new(None));
            watch.load_files(&files, &store).unwrap();
            (watch.known(), store.select(None).unwrap())
        };
        let end = std::time::Instant::now() + Duration::from_secs(60);
        let (mut known, mut first) = load(KnownCertificates::default());
        assert!(known.0.is_empty(), "the files have just changed, and may change again");
        while known.0.is_empty() {
            assert!(std::time::Instant::now() < end, "the files do not settle");
            std::thread::sleep(Duration::from_millis(50));
            (known, first) = load(known);
        }
        let (known, second) = load(known);
        assert!(Arc::ptr_eq(&first, &second));
        write(root, "b.example");
        let (_, third) = load(known);
        assert!(!Arc::ptr_eq(&second, &third));
    }

    #[test]
    fn an_expired_certificate_does_not_replace_another() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a.example");
        let (mut files, store) = watched(root);
        let mut params = rcgen::CertificateParams::new(["old.example".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(2002, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(root.join("a.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(root.join("a.key"), key.serialize_pem()).unwrap();
        assert!(files.look(SystemTime::now()).is_none());
        let found = files.look(SystemTime::now()).unwrap();
        let status = CertificateStatus::default();
        status.describe(vec![store]);
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = seen.clone();
        let report: Report = Arc::new(move |event: &Event| {
            told.lock().unwrap().push(format!("{} {event}", event.name()));
        });
        apply(&files, found, &report, &status);
        assert_eq!(status.failures(), 1);
        assert_eq!(status.ends().keys().collect::<Vec<_>>(), ["a.example"]);
        let seen = seen.lock().unwrap();
        let [line] = &seen[..] else { panic!("{seen:?}") };
        assert!(line.starts_with("certificate-failed the certificate "), "{line}");
        assert!(line.contains("has expired on 2002-01-01T00:00:00Z"), "{line}");
    }
}
