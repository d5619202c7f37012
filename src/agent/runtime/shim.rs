//! The supervisor of one process: what makes it outlive the agent.
//!
//! The agent may be killed at any moment, and who is not a process's parent can never learn its exit code. So each
//! process has a tiny parent of its own, `quorate agent-shim FOLDER`, in a session of its own. It starts the command,
//! copies its output into bounded files, waits, ends what is left of the process group, and writes down durably how it
//! ended. While it lives it holds the folder's `alive` pipe open: whoever reads that pipe learns of its end at once.

pub(crate) mod log;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo, setsid};
use quorate_base::Clock;
use quorate_base::sync::lock;
use quorate_base::tasks::spawn_thread;
use serde::{Deserialize, Serialize};

use crate::durable;
use log::{Lines, OUTPUT, RotatingLog, record};

/// The pipe that the shim holds open while it lives.
pub(crate) const ALIVE: &str = "alive";
/// What to run, written by the agent.
pub(crate) const RUN: &str = "run.json";
/// What became of it, written by the shim.
pub(crate) const STATE: &str = "state.json";
/// Bytes of [`STATE`], blanks included: each state fits over the one before.
const STATE_BYTES: usize = 512;
/// Keeps a second shim out.
const LOCK: &str = "lock";
/// How long output may still trickle in after the end: a process that left the group may hold the pipe for ever.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// What a shim runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory; the folder's own when absent.
    pub(crate) workdir: Option<PathBuf>,
    /// User and group to become.
    pub(crate) user: Option<(u32, u32)>,
    /// Most bytes of one log file.
    pub(crate) log_bytes: u64,
    /// Log files kept per stream, the one being written included.
    pub(crate) log_files: u32,
}

/// A process, named so that a reused pid is not mistaken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its pid, and its group's.
    pub(crate) pid: i32,
    /// When it started, in clock ticks since the boot (field 22 of `/proc/<pid>/stat`).
    pub(crate) start_time: u64,
    /// Which boot.
    pub(crate) boot: String,
    /// When it started, in milliseconds since 1970.
    pub(crate) since: u64,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It was started.
    Running(Process),
    /// It could not be started.
    Failed {
        /// Why, for users.
        message: String,
        /// Whether the same attempt may succeed later.
        transient: bool,
    },
    /// It ended.
    Exited {
        /// Its exit code.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

impl State {
    /// What the folder's state file says; `None` when there is none.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(folder.join(STATE)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it down: as a new file, or over the old one where the disk has no room for another.
    fn write(&self, folder: &Path) -> io::Result<()> {
        let (path, text) = (folder.join(STATE), format!("{:STATE_BYTES$}", serde_json::to_string(self)?));
        durable::replace(&path, text.as_bytes()).or_else(|_| {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
    }
}

impl Process {
    /// The child `pid`, which may have ended already but was not waited for.
    fn of(pid: i32, clock: &Clock) -> io::Result<Self> {
        let since = clock.now().as_millis();
        Ok(Self { pid, start_time: stat(pid)?.1, boot: boot()?, since })
    }

    /// Whether it still runs. A zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        let is_it =
            |(state, start_time): (char, u64)| !matches!(state, 'Z' | 'X') && start_time == self.start_time;
        stat(self.pid).is_ok_and(is_it) && !self.is_of_another_boot()
    }

    /// Whether it belongs to an earlier life of the machine.
    pub(crate) fn is_of_another_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot != self.boot)
    }

    /// Signals it alone, if it is still the same process. False when it is not.
    pub(crate) fn signal(&self, signal: Signal) -> Result<bool, Errno> {
        if !self.is_alive() {
            return Ok(false);
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Err(Errno::ESRCH) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Signals its whole group, if it is still the same process.
    pub(crate) fn signal_group(&self, signal: Signal) -> Result<(), Errno> {
        if !self.is_alive() {
            return Ok(());
        }
        match killpg(Pid::from_raw(self.pid), signal) {
            Err(Errno::ESRCH) => Ok(()),
            other => other,
        }
    }
}

/// Fields 3 and 22 of `/proc/<pid>/stat`: the state, and when it started.
fn stat(pid: i32) -> io::Result<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in field 2 may hold blanks and parentheses; fields count from 3 behind the last one.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next().and_then(|state| state.chars().next());
    let start_time = fields.nth(18).and_then(|ticks| ticks.parse().ok());
    state.zip(start_time).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The whole life of a shim. `args` are those behind the subcommand: the folder.
///
/// Prints the run's first state as one line of JSON to standard output, for the agent that waits for it, if that still
/// lives. Prints nothing if another shim has the folder already.
#[must_use]
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let (Some(folder), None) = (args.next().map(PathBuf::from), args.next()) else {
        eprintln!("usage: agent-shim FOLDER; the agent starts it, people do not");
        return ExitCode::from(2);
    };
    match supervise(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent-shim {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn supervise(folder: &Path) -> io::Result<()> {
    // A session of its own: neither the agent's terminal nor its process group reaches it. Fails only for a group
    // leader, which is apart already.
    let _ = setsid();
    let Some(_hold) = Hold::take(folder)? else { return Ok(()) };
    // The state of the run before would be taken for this one's.
    match fs::remove_file(folder.join(STATE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let run: Run = serde_json::from_slice(&fs::read(folder.join(RUN))?)?;
    let mut child = match start(folder, &run) {
        Ok(child) => child,
        Err(state) => return announce(folder, &state),
    };
    let log = RotatingLog::new(folder.join(OUTPUT), run.log_bytes, run.log_files);
    let log = Arc::new(Mutex::new(log));
    let outputs =
        [pump(child.stdout.take(), false, Arc::clone(&log))?, pump(child.stderr.take(), true, log)?];
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    // On a full disk the process runs all the same: the agent sees a shim without a state, and then its end.
    let announced = Process::of(pid, &Clock::system()).and_then(|p| announce(folder, &State::Running(p)));
    if let Err(error) = &announced {
        eprintln!("agent-shim {}: {error}", folder.display());
    }
    let status = child.wait()?;
    // Whatever it left behind in its group ends with it.
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    for output in outputs {
        let _ = output.recv_timeout(LAST_OUTPUT);
    }
    State::Exited { code: status.code(), signal: status.signal() }.write(folder)
}

/// What a shim holds of its folder. Fields fall in this order, and so do the files of a killed process: who sees the
/// pipe end may start another shim at once.
struct Hold {
    _lock: Flock<File>,
    _alive: File,
}

impl Hold {
    /// Takes the folder; `None` when another shim has it.
    fn take(folder: &Path) -> io::Result<Option<Self>> {
        let lock = File::create(folder.join(LOCK))?;
        let Ok(lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
        let path = folder.join(ALIVE);
        match mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // For both directions: that never blocks. The child does not inherit it.
        let alive = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Some(Self { _lock: lock, _alive: alive }))
    }
}

fn start(folder: &Path, run: &Run) -> Result<Child, State> {
    let failed = |message: String, transient| State::Failed { message, transient };
    let [program, args @ ..] = run.argv.as_slice() else {
        return Err(failed("cannot start: the command is empty".to_owned(), false));
    };
    let workdir = run.workdir.as_deref().unwrap_or(folder);
    if let Err(error) = fs::read_dir(workdir) {
        let text = durable::text(&error);
        return Err(failed(
            format!("cannot start {program}: working directory {}: {text}", workdir.display()),
            false,
        ));
    }
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&run.env).current_dir(workdir).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some((uid, gid)) = run.user {
        command.uid(uid).gid(gid);
    }
    command.spawn().map_err(|error| {
        // Too many processes or too little memory pass; a missing program does not.
        let transient = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory);
        failed(format!("cannot start {program}: {}", durable::text(&error)), transient)
    })
}

/// Writes the state down, then tells the agent, whether it listens or not.
fn announce(folder: &Path, state: &State) -> io::Result<()> {
    let written = state.write(folder);
    let line = serde_json::to_string(state)?;
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    written
}

/// Copies a stream into the log on a thread of its own; the receiver hears of the stream's end.
fn pump(
    stream: Option<impl Read + Send + 'static>,
    stderr: bool,
    log: Arc<Mutex<RotatingLog>>,
) -> io::Result<Receiver<()>> {
    let (done, ended) = sync_channel(1);
    spawn_thread("output", move || {
        let (mut buffer, mut lines, clock) = ([0; 16 * 1024], Lines::default(), Clock::system());
        let Some(mut stream) = stream else { return };
        let write = |data: &[u8], unfinished| {
            lock(&log).append(&record(clock.now(), stderr, data, unfinished));
        };
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => lines.take(&buffer[..count], write),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        lines.finish(write);
        let _ = done.send(());
    })?;
    Ok(ended)
}
