//! Notifications by the file system of commits of other processes.
//!
//! A commit writes to the write-ahead log before it is visible, because it flushes in between. So a thread
//! waits for a write and then makes the writer look again and again, until it finds the commit. While no
//! process writes, the thread sleeps. Without notifications the writer polls.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::WriteMessage;
use crate::files::{next_to, real_path};

/// The interval at which the writer looks without notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The interval at which it looks although it has notifications, in case one is lost.
const BACKUP_INTERVAL: Duration = Duration::from_secs(1);

/// The notifications of a database, which run while a watch exists.
pub(super) struct CommitWatch {
    wal: PathBuf,
    looks: Looks,
    state: State,
}

enum State {
    Off,
    /// Dropping it ends its thread.
    On {
        _watch: WalWatch,
    },
    /// The system has no notifications to give.
    Missing,
}

/// The state that the thread shares with the writer.
#[derive(Clone)]
struct Looks {
    /// The queue of the writer. The thread must not keep it open.
    queue: Weak<Sender<WriteMessage>>,
    /// The number of times that the writer found commits.
    found: Arc<AtomicU64>,
}

impl CommitWatch {
    pub(super) fn new(database: &Path, queue: Weak<Sender<WriteMessage>>) -> Self {
        let looks = Looks { queue, found: Arc::default() };
        Self { wal: next_to(&real_path(database), "-wal"), looks, state: State::Off }
    }

    /// Starts the notifications if a watch exists, and ends them otherwise. Returns the interval at which
    /// the writer must look; `None` if nobody watches.
    pub(super) fn interval(&mut self, is_watched: bool) -> Option<Duration> {
        if !is_watched {
            self.state = State::Off;
            return None;
        }
        if matches!(self.state, State::Off) {
            let started = WalWatch::start(&self.wal, self.looks.clone());
            self.state = started.map_or(State::Missing, |watch| State::On { _watch: watch });
        }
        Some(if matches!(self.state, State::On { .. }) { BACKUP_INTERVAL } else { POLL_INTERVAL })
    }

    /// Records that the writer found commits of another process.
    pub(super) fn note_found(&self) {
        self.looks.found.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
use linux::WalWatch;

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::{Errno, ioctl_fionread};

    use super::{Arc, Duration, Looks, Ordering, Path, WriteMessage};

    /// The pauses before the looks after a write, and how many looks have each. Most flushes take a few
    /// milliseconds; the commit of a slower one is found a little later.
    const PAUSES: [(Duration, u32); 3] =
        [(Duration::from_millis(2), 1), (Duration::from_millis(4), 15), (Duration::from_millis(16), 30)];

    /// A thread that waits for writes to the log. It ends when this is dropped.
    pub(super) struct WalWatch {
        inotify: Arc<OwnedFd>,
        watch: i32,
    }

    impl WalWatch {
        /// Starts the thread; `None` if the system has no notifications to give.
        pub(super) fn start(wal: &Path, looks: Looks) -> Option<Self> {
            let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC).ok()?);
            let watch = inotify::add_watch(&*inotify, wal, WatchFlags::MODIFY).ok()?;
            let of_thread = Arc::clone(&inotify);
            let started = std::thread::Builder::new()
                .name("larder-sqlite-watch".to_owned())
                .spawn(move || run(&of_thread, &looks));
            started.ok().map(|_| Self { inotify, watch })
        }
    }

    impl Drop for WalWatch {
        fn drop(&mut self) {
            // The thread receives an event when the watch is removed.
            let _ = inotify::remove_watch(&*self.inotify, self.watch);
        }
    }

    fn run(inotify: &OwnedFd, looks: &Looks) {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = Reader::new(inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if events.is_buffer_empty() && look(inotify, looks).is_none() {
                return;
            }
        }
    }

    /// Makes the writer look until it finds a commit or the next event arrives; `None` if the writer has
    /// ended. It never finds a commit of this process, which it has announced itself.
    fn look(inotify: &OwnedFd, looks: &Looks) -> Option<()> {
        let before = looks.found.load(Ordering::Relaxed);
        for (pause, times) in PAUSES {
            for _ in 0..times {
                std::thread::sleep(pause);
                looks.queue.upgrade()?.send(WriteMessage::Look).ok()?;
                let is_found = looks.found.load(Ordering::Relaxed) != before;
                if is_found || ioctl_fionread(inotify).unwrap_or(0) > 0 {
                    return Some(());
                }
            }
        }
        Some(())
    }
}

#[cfg(not(target_os = "linux"))]
struct WalWatch;

#[cfg(not(target_os = "linux"))]
impl WalWatch {
    fn start(_wal: &Path, _looks: Looks) -> Option<Self> {
        None
    }
}
