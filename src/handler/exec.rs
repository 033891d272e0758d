//! Handlers that are processes, one for each attempt.
//!
//! The payload goes to stdin, the job into the environment; exit, last stdout line and stderr come back.
//! Invariants: an attempt ends within its time-out and [`LINGER`]; it reads all that the process prints
//! and keeps a bounded part; when it ends, or its future is dropped, its whole process group is killed
//! and the process itself reaped. A process that could not be started is a dependency's fault (G6).
//!
//! Deliberately absent: a shell (`command` is the argument vector), and reaping of grandchildren, which
//! is the work of process 1. A worker that is itself killed by SIGKILL cannot take its handlers along.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::environment::{ATTRIBUTE_PREFIX, Variables, attribute_variables, job_variables};
use super::report::{Ending, Leftover, judge};
use super::tail::Tail;
use crate::domain::failure::{Done, ErrorClass};
use crate::port::error::{PortError, Target};
use crate::port::handler::{Handler, HandlerError, Job};

/// How long pipes that others hold open are still read after the process has ended, and how long a
/// killed process is awaited.
pub const LINGER: Duration = Duration::from_millis(500);
/// How much of stdout is kept: no report is longer.
const STDOUT_BYTES: usize = 1024 * 1024;
/// How much of stderr is kept.
const STDERR_BYTES: usize = 64 * 1024;

/// Runs each job as a process of its own.
#[derive(Debug, Clone)]
pub struct ExecHandler {
    command: Vec<String>,
    permanent_exit_codes: Vec<i32>,
}

impl ExecHandler {
    /// A handler that runs `command`, the program and its arguments. Beside 65, `permanent_exit_codes`
    /// say that the same input will fail again.
    #[must_use]
    pub const fn new(command: Vec<String>, permanent_exit_codes: Vec<i32>) -> Self {
        Self { command, permanent_exit_codes }
    }

    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn spawn(&self, job: &Job) -> io::Result<Child> {
        let job_only = job_variables(job);
        let mut all = attribute_variables(&job.attributes);
        all.extend(job_only.clone());
        match self.command(&all).spawn() {
            // Each variable is passable, but not all of them together. Without this a large message
            // would look like a dependency's fault for ever.
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                tracing::debug!("all attributes left out of the handler's environment: too large");
                self.command(&job_only).spawn()
            }
            spawned => spawned,
        }
    }

    fn command(&self, variables: &Variables) -> Command {
        let mut command = Command::new(self.program());
        command
            .args(self.command.iter().skip(1))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        // An attribute of the job that this worker may itself run in is none of this job.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(ATTRIBUTE_PREFIX.as_bytes()) {
                command.env_remove(name);
            }
        }
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn unreachable(&self, operation: &'static str, error: &io::Error) -> HandlerError {
        HandlerError::Unreachable(PortError::new(
            ErrorClass::Transient,
            Target::Handler,
            operation,
            self.program(),
            error.to_string(),
        ))
    }
}

#[async_trait]
impl Handler for ExecHandler {
    fn kind(&self) -> &'static str {
        "exec"
    }

    async fn check(&self) -> Result<(), String> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        find_program(self.program(), std::env::split_paths(&path))
    }

    async fn run(&self, job: &Job, limit: Duration) -> Result<Done, HandlerError> {
        let mut child = self.spawn(job).map_err(|error| self.unreachable("spawn", &error))?;
        // Declared after the child, so dropped before it: the group is killed while its id is still held.
        let group = Group::led_by(&child);
        let mut stdout = Tail::new(STDOUT_BYTES);
        let mut stderr = Tail::new(STDERR_BYTES);
        let waited = {
            let (input, output, errors) =
                (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let pipes = async {
                tokio::join!(
                    feed(input, &job.payload),
                    drain(output, &mut stdout),
                    drain(errors, &mut stderr)
                );
            };
            let mut pipes = pin!(pipes);
            let mut drained = false;
            let exited = async {
                loop {
                    tokio::select! {
                        biased;
                        // First, since a flood of output must not hide the end.
                        status = child.wait() => break status,
                        () = &mut pipes, if !drained => drained = true,
                    }
                }
            };
            let waited = timeout(limit, exited).await;
            if waited.is_ok() && !drained {
                let _held_open_by_others = timeout(LINGER, &mut pipes).await;
            }
            waited
        };
        drop(group);
        let ending = match waited {
            Ok(status) => ending(status.map_err(|error| self.unreachable("wait", &error))?),
            Err(_elapsed) => {
                // One that does not die even of SIGKILL is left to the runtime, which reaps it later.
                let _reaped = timeout(LINGER, child.wait()).await;
                Ending::TimedOut(limit)
            }
        };
        let left =
            Leftover { ending, stdout_line: stdout.into_last_line(), stderr: stderr.into_text() };
        judge(left, &self.permanent_exit_codes).map_err(HandlerError::Failed)
    }
}

fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signaled(signal),
        // Neither happens only to a stopped process, which is never awaited.
        (None, None) => Ending::Exited(status.into_raw()),
    }
}

/// A process group, killed when dropped. After its leader was reaped its id could in theory be another's,
/// if all ids were used up within [`LINGER`].
struct Group(Option<Pid>);

impl Group {
    fn led_by(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _nobody_left = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Writes the payload and closes stdin. A process need not read it: only its exit counts.
async fn feed(stdin: Option<ChildStdin>, payload: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _unread = stdin.write_all(payload).await;
    }
}

/// Reads a pipe until it is closed.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Tail) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        tail.push(chunk.get(..read).unwrap_or_default());
    }
}

/// Whether `program` can be started, as execvp(3) looks it up: a name with a slash is a path, any other
/// is searched for.
fn find_program(program: &str, mut search: impl Iterator<Item = PathBuf>) -> Result<(), String> {
    if program.is_empty() {
        return Err("[handler] command is empty: name the program and its arguments".to_owned());
    }
    if program.contains('/') {
        return match Path::new(program) {
            path if is_executable(path) => Ok(()),
            path if path.exists() => Err(format!(
                "[handler] command: {program:?} is no executable file: chmod +x it, or run it by its interpreter"
            )),
            _ => Err(format!("[handler] command: {program:?} does not exist: correct the path")),
        };
    }
    if search.any(|directory| is_executable(&directory.join(program))) {
        return Ok(());
    }
    Err(format!(
        "[handler] command: no executable {program:?} in PATH: install it, or give its full path"
    ))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::domain::failure::{Failure, FailureKind};
    use crate::domain::id::{EntryKey, MessageId, QueueName, RecordId, RunId};
    use crate::domain::message::{Attribute, Attributes, Value};

    /// Only to tell a hang: no test here takes a tenth of it.
    const LONG: Duration = Duration::from_secs(30);
    /// Long enough for a shell to start on a busy machine.
    const SHORT: Duration = Duration::from_secs(1);

    fn job(payload: &'static [u8]) -> Job {
        Job {
            payload: Bytes::from_static(payload),
            attributes: Attributes::new(),
            key: EntryKey::new("a".repeat(64)).unwrap(),
            generation: 7,
            record_id: RecordId::new("record").unwrap(),
            message_id: MessageId::new("message").unwrap(),
            attempt: 2,
            receive_count: Some(3),
            queue: QueueName::new("orders").unwrap(),
            group_id: None,
            run_id: None,
        }
    }

    fn shell(script: &str) -> ExecHandler {
        ExecHandler::new(["sh", "-c", script].map(str::to_owned).to_vec(), vec![3])
    }

    async fn run(script: &str) -> Result<Done, HandlerError> {
        shell(script).run(&job(b"payload"), LONG).await
    }

    fn failure(result: Result<Done, HandlerError>) -> Failure {
        match result {
            Err(HandlerError::Failed(failure)) => *failure,
            other => panic!("{other:?}"),
        }
    }

    fn unreachable(result: Result<Done, HandlerError>) -> PortError {
        match result {
            Err(HandlerError::Unreachable(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    /// The state letter that Linux shows for a process, if it is there.
    fn state(pid: &str) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    }

    /// Waits until a process is gone; a grandchild may be a zombie that process 1 has not reaped.
    async fn gone(pid: &str, gone: fn(Option<char>) -> bool) {
        for _ in 0..1000 {
            if gone(state(pid)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("process {pid} is still there: {:?}", state(pid));
    }

    fn reaped(state: Option<char>) -> bool {
        state.is_none()
    }

    fn dead(state: Option<char>) -> bool {
        matches!(state, None | Some('Z' | 'X'))
    }

    #[tokio::test]
    async fn exits_and_signals_are_mapped_as_documented() {
        assert_eq!(run("exit 0").await.unwrap(), Done::default());
        for (script, outcome, code) in [
            ("exit 65", "permanent", "EXIT_65"),
            ("exit 3", "permanent", "EXIT_3"),
            ("exit 75", "transient", "EXIT_75"),
            ("exit 1", "transient", "EXIT_1"),
            ("exit 137", "transient", "EXIT_137"),
            ("exit 143", "transient", "EXIT_143"),
            ("kill -9 $$", "transient", "SIGNAL_9"),
            ("kill -15 $$", "transient", "SIGNAL_15"),
        ] {
            let failure = failure(run(script).await);
            assert_eq!(
                (failure.outcome(), failure.error_code.as_str()),
                (outcome, code),
                "{script}"
            );
        }
    }

    #[tokio::test]
    async fn the_last_lines_of_both_streams_come_back() {
        let script = r#"echo progress; echo '{"error_code":"ISRC","message":"bad","retry_after_s":9}'
            printf 'Traceback\n  \377\nboom\n' >&2; exit 75"#;
        let failure = failure(run(script).await);
        let retry_after = Some(Duration::from_secs(9));
        assert_eq!(failure.kind, FailureKind::Transient { retry_after });
        assert_eq!((failure.error_code.as_str(), failure.message.as_str()), ("ISRC", "bad"));
        assert_eq!(failure.exception.unwrap().traceback, "Traceback\n  \u{FFFD}\nboom\n");
        let done = run(r#"echo '{"confidence": 0.62}'; echo"#).await.unwrap();
        assert_eq!(done.confidence, Some(0.62));
    }

    #[tokio::test]
    async fn the_payload_arrives_exactly() {
        let script = r#"test "$(od -An -tx1 | tr -d ' \n')" = 7b00ff0d0a"#;
        let result = shell(script).run(&job(b"{\x00\xFF\r\n"), LONG).await;
        assert_eq!(result.unwrap(), Done::default());
    }

    #[tokio::test]
    async fn the_environment_names_the_job() {
        let mut job = job(b"");
        job.attributes.insert("event-name".into(), Attribute::string("push"));
        job.attributes.insert("nul".into(), Attribute::string("a\0b"));
        let blob = Attribute { data_type: "Binary".into(), value: Value::Binary(vec![0, 255]) };
        job.attributes.insert("blob".into(), blob);
        job.run_id = RunId::new("run").ok();
        let script =
            r#"printf '{"message":"%s"}\n' "$(env | grep ^REDRIVE_ | sort | tr '\n' ' ')"; exit 1"#;
        let message = failure(shell(script).run(&job, LONG).await).message;
        let key = "a".repeat(64);
        assert_eq!(
            message,
            format!(
                "REDRIVE_ATTEMPT=2 REDRIVE_ATTR_BLOB=AP8= REDRIVE_ATTR_EVENT_NAME=push \
                 REDRIVE_IDEMPOTENCY_KEY={key}-7 REDRIVE_KEY={key} REDRIVE_MESSAGE_ID=message \
                 REDRIVE_QUEUE=orders REDRIVE_RECEIVE_COUNT=3 REDRIVE_RECORD_ID=record \
                 REDRIVE_RUN_ID=run "
            )
        );
    }

    #[test]
    fn what_this_job_lacks_is_not_inherited() {
        let mut job = job(b"");
        job.receive_count = None;
        let command = shell("").command(&job_variables(&job));
        let removed: Vec<_> =
            command.as_std().get_envs().filter(|(_, value)| value.is_none()).collect();
        let names: Vec<_> = removed.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["REDRIVE_GROUP_ID", "REDRIVE_RECEIVE_COUNT", "REDRIVE_RUN_ID"]);
    }

    #[tokio::test]
    async fn attributes_too_large_together_are_left_out_and_the_job_still_runs() {
        let mut job = job(b"");
        for n in 0..60 {
            job.attributes.insert(format!("a{n}"), Attribute::string("x".repeat(130_000)));
        }
        let script = r#"test -n "$REDRIVE_KEY" && test -z "$REDRIVE_ATTR_A0""#;
        assert_eq!(shell(script).run(&job, LONG).await.unwrap(), Done::default());
    }

    #[tokio::test]
    async fn a_child_need_not_read_its_input() {
        let job = job(&[b'x'; 1024 * 1024]);
        for script in ["exec 0<&-; exit 0", "exit 0", "head -c 1 >/dev/null"] {
            assert_eq!(shell(script).run(&job, LONG).await.unwrap(), Done::default(), "{script}");
        }
    }

    #[tokio::test]
    async fn a_flood_of_output_neither_blocks_nor_hides_the_report() {
        let script = r#"head -c 10000000 /dev/zero | tr '\0' x; head -c 10000000 /dev/zero | tr '\0' e >&2
            printf '\n{"confidence": 1}\n'; cat >/dev/null"#;
        assert_eq!(run(script).await.unwrap().confidence, Some(1.0));
        let one_line = "head -c 3000000 /dev/zero | tr '\\0' '{' >&2; exit 1";
        let traceback = failure(run(one_line).await).exception.unwrap().traceback;
        assert_eq!(traceback.len(), STDERR_BYTES);
    }

    #[tokio::test]
    async fn at_the_time_out_the_whole_group_is_killed_and_reaped() {
        let script = "sleep 600 & echo $$ $! >&2; while :; do echo spam; done";
        let failure = failure(shell(script).run(&job(b""), SHORT).await);
        assert_eq!(failure.error_code.as_str(), "HANDLER_TIMEOUT");
        assert_eq!(
            (failure.outcome(), failure.message.as_str()),
            ("transient", "timed out after 1s")
        );
        let pids = failure.exception.unwrap().traceback;
        let (child, grandchild) = pids.trim().split_once(' ').unwrap();
        assert_eq!(state(child), None, "reaped before the attempt ends");
        gone(grandchild, dead).await;
    }

    #[tokio::test]
    async fn dropping_the_attempt_kills_the_group_and_leaves_no_zombie() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let script =
            format!("sleep 600 & echo $$ $! >{0}.tmp; mv {0}.tmp {0}; wait", pids.display());
        let (handler, job) = (shell(&script), job(b""));
        {
            let mut attempt = handler.run(&job, LONG);
            while !pids.exists() {
                assert!(timeout(Duration::from_millis(10), &mut attempt).await.is_err());
            }
        }
        let pids = std::fs::read_to_string(pids).unwrap();
        let (child, grandchild) = pids.trim().split_once(' ').unwrap();
        gone(child, reaped).await;
        gone(grandchild, dead).await;
    }

    #[tokio::test]
    async fn a_grandchild_that_holds_the_pipes_does_not_hold_the_attempt() {
        let failure = failure(run("sleep 600 & echo $! >&2; exit 65").await);
        assert_eq!(failure.outcome(), "permanent");
        gone(&failure.message, dead).await;
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_is_nobodys_fault() {
        let directory = tempfile::tempdir().unwrap();
        let busy = directory.path().join("busy");
        std::fs::copy("/bin/sh", &busy).unwrap();
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        // Linux does not execute a file that is open for writing: ETXTBSY.
        let _writer = std::fs::OpenOptions::new().append(true).open(&busy).unwrap();
        for program in ["no-such-program", plain.to_str().unwrap(), busy.to_str().unwrap(), ""] {
            let handler = ExecHandler::new(vec![program.to_owned()], vec![]);
            let error = unreachable(handler.run(&job(b""), LONG).await);
            assert_eq!((error.class(), error.target()), (ErrorClass::Transient, Target::Handler));
            assert_eq!(error.object(), program);
            assert!(error.to_string().starts_with("handler spawn on "), "{error}");
        }
    }

    #[tokio::test]
    async fn neither_payload_nor_output_reaches_log_or_error_text() {
        use std::sync::{Arc, Mutex};
        let log = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&log);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || Shared(Arc::clone(&writer)))
            .finish();
        let _subscribed = tracing::subscriber::set_default(subscriber);
        let mut job = job(br#"{"token":"SECRET-XYZ"}"#);
        job.attributes.insert("nul".into(), Attribute::string("SECRET-XYZ\0"));
        let result = shell("tee /dev/stderr; exit 1").run(&job, LONG).await;
        let shown = result.as_ref().unwrap_err().to_string();
        assert!(failure(result).message.contains("SECRET-XYZ"), "evidence has it");
        let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
        assert!(log.contains("attribute=nul"), "{log}");
        assert!(!log.contains("SECRET") && !shown.contains("SECRET"), "{log}{shown}");
    }

    #[derive(Debug)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            io::Write::write(&mut *self.0.lock().unwrap(), bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_program_is_looked_up_as_the_system_does() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let path = || [directory.path().to_owned(), PathBuf::from("/bin")].into_iter();
        assert_eq!(find_program("sh", path()), Ok(()));
        assert_eq!(find_program("/bin/sh", path()), Ok(()));
        for (program, next) in [
            ("", "name the program"),
            ("plain", "install it"),
            ("no-such-program", "install it"),
            (plain.to_str().unwrap(), "chmod +x"),
            (directory.path().to_str().unwrap(), "chmod +x"),
            ("./no-such-program", "correct the path"),
        ] {
            let error = find_program(program, path()).unwrap_err();
            assert!(error.contains(next) && error.contains(program), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
