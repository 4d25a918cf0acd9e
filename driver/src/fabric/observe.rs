//! Looks at a fabric from outside: who is in it, and what each of them says of itself. An
//! observer takes no slot, and members need no thread for it: one that is asked answers when its
//! engine is next driven, which asking sees to.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::ServiceId;

use super::error::FabricError;
use super::member;
use super::ports;
use super::registry::{Entry, FROM_LINK, Presence, Registry, View, open_file};
use super::report::Report;
use super::ring;
use super::shm::Shared;
use super::waker::Waker;

/// Between two looks for answers.
const LOOK: Duration = Duration::from_millis(2);

/// A look at the fabric in one directory.
#[derive(Debug)]
pub struct Observer {
    /// None if nobody has joined the fabric yet.
    registry: Option<Registry>,
}

/// A live member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its slot.
    pub slot: u8,
    /// Tells it from earlier members in the slot.
    pub generation: u64,
    /// Its process, as it said when it joined.
    pub pid: u32,
    /// The addresses it joined with.
    pub gids: Vec<Gid>,
}

/// A service that a live member listens for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Who listens.
    pub process: Process,
    /// For what.
    pub service: ServiceId,
    /// Where: `None` at all addresses, an unspecified one at all of its family.
    pub address: Option<IpAddr>,
}

/// What a live member has answered.
#[derive(Debug)]
pub struct Answer {
    /// Who was asked.
    pub process: Process,
    /// Its report.
    pub report: Result<Report, NoReport>,
}

/// Why there is no report.
#[derive(Debug)]
pub enum NoReport {
    /// It has not answered in time: it is stopped, hangs, or has no engine.
    Silent,
    /// It has gone meanwhile.
    Gone,
    /// What it has answered cannot be read.
    Unreadable(io::Error),
}

impl fmt::Display for NoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoReport::Silent => f.write_str("did not answer in time"),
            NoReport::Gone => f.write_str("has left"),
            NoReport::Unreadable(error) => write!(f, "its answer cannot be read: {error}"),
        }
    }
}

impl std::error::Error for NoReport {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NoReport::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

/// Looks at the fabric in a directory, which need not exist: then it has no members.
///
/// # Errors
///
/// See [`FabricError`]; never that it is full or has no space.
pub fn observe(dir: &Path) -> Result<Observer, FabricError> {
    match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Observer { registry: None });
        }
        _ => member::check(dir)?,
    }
    Ok(Observer { registry: Registry::open_existing(dir)? })
}

impl Observer {
    /// The live members, by slot. Of a gateway, the half that has something to say.
    pub fn members(&self) -> Vec<Process> {
        let Some(registry) = &self.registry else { return Vec::new() };
        let view = View::new(registry);
        let process = |(slot, entry): (u8, &Entry)| {
            let generation = entry.generation().filter(|_| !entry.says(FROM_LINK))?;
            let gids = entry.gids().to_vec();
            (!registry.is_dead(slot)).then(|| Process { slot, generation, pid: entry.pid(), gids })
        };
        (0..=u8::MAX).zip(view.entries()).filter_map(process).collect()
    }

    /// What the live members listen for in connection management, by slot.
    pub fn listening(&self) -> Vec<Listener> {
        let Some(registry) = &self.registry else { return Vec::new() };
        let of_process = |process: Process| {
            let bindings = ports::listening(registry, process.slot, process.generation);
            bindings.into_iter().map(move |binding| Listener {
                process: process.clone(),
                service: ServiceId(binding.service),
                address: binding.ip(),
            })
        };
        self.members().into_iter().flat_map(of_process).collect()
    }

    /// Asks all live members for a report and waits at most `timeout` for the last of them. What
    /// the dead have left is removed.
    pub fn ask(&self, timeout: Duration) -> Vec<Answer> {
        let Some(registry) = &self.registry else { return Vec::new() };
        if let Some(lock) = registry.try_lock() {
            registry.sweep(&lock);
        }
        let start = Instant::now();
        let question = |process| Question::ask(registry, process);
        let mut questions: Vec<Question> = self.members().into_iter().map(question).collect();
        loop {
            for question in &mut questions {
                question.look(registry);
            }
            let is_open = questions.iter().any(Question::is_open);
            if !is_open || start.elapsed() >= timeout {
                break;
            }
            thread::sleep(LOOK);
        }
        questions.into_iter().map(|question| question.close(registry)).collect()
    }
}

/// A member that has been asked.
struct Question {
    process: Process,
    /// The number of the question; none if nobody was there to be asked.
    asked: Option<u64>,
    /// Inode and time of change of the report last looked at: each is a new file.
    seen: Option<(u64, i64, i64)>,
    report: Option<Report>,
    /// What is wrong, unless a report comes yet.
    trouble: NoReport,
}

impl Question {
    fn ask(registry: &Registry, process: Process) -> Question {
        let ring = open_file(&registry.member_path(process.slot), Presence::Existing)
            .and_then(|file| Shared::map_sparsely(&file, ring::FILE_LEN))
            .ok()
            .filter(|ring| ring::is_of(ring, process.generation));
        let (asked, trouble) = match ring {
            Some(ring) => {
                let asked = ring::ask(&ring);
                Waker::of(&ring, &registry.wake_path(process.slot)).wake(&ring);
                (Some(asked), NoReport::Silent)
            }
            None => (None, NoReport::Gone),
        };
        Question { process, asked, seen: None, report: None, trouble }
    }

    /// Whether an answer may come yet.
    fn is_open(&self) -> bool {
        self.report.is_none() && self.asked.is_some()
    }

    /// Looks whether the report is there.
    fn look(&mut self, registry: &Registry) {
        if !self.is_open() {
            return;
        }
        let path = registry.report_path(self.process.slot);
        let Ok(file) = open_file(&path, Presence::Existing) else { return };
        let Ok(metadata) = file.metadata() else { return };
        let identity = (metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
        if self.seen.replace(identity) == Some(identity) {
            return;
        }
        match Report::read(&file) {
            Ok(report) if self.is_answered_by(&report) => self.report = Some(report),
            // An answer to somebody else, some time ago.
            Ok(_) => {}
            Err(error) => self.trouble = NoReport::Unreadable(error),
        }
    }

    fn is_answered_by(&self, report: &Report) -> bool {
        let answers = |asked| report.served.wrapping_sub(asked) as i64 >= 0;
        report.generation == self.process.generation && self.asked.is_some_and(answers)
    }

    fn close(self, registry: &Registry) -> Answer {
        let trouble = match registry.is_dead(self.process.slot) {
            true => NoReport::Gone,
            false => self.trouble,
        };
        Answer { process: self.process, report: self.report.ok_or(trouble) }
    }
}
