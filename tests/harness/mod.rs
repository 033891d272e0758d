//! A fresh world for the built binary: its own folder and configuration, its own embedded AWS.
//!
//! Everything is asked of the binary itself or of AWS's own protocol; nothing looks inside. Waits are for
//! a condition, with a bound that only tells a hang.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest any wait may take: ten times what is expected.
pub(crate) const HANG: Duration = Duration::from_secs(180);

/// A child process that does not outlive its test.
pub(crate) struct Process(Child);

impl Process {
    /// SIGKILL, and wait for the end.
    pub(crate) fn kill_9(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// SIGTERM, and wait for the end.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < HANG, "the process hangs");
            pause();
        }
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        if self.0.kill().is_ok() {
            self.0.wait().unwrap();
        }
    }
}

/// One world.
pub(crate) struct World {
    folder: tempfile::TempDir,
    endpoint: String,
    _local: Process,
}

impl World {
    /// A world with this configuration.
    pub(crate) fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("redrive.toml"), config).unwrap();
        Self::serve(folder)
    }

    /// A world without a configuration: the embedded AWS has its own names.
    pub(crate) fn bare() -> Self {
        Self::serve(tempfile::tempdir().unwrap())
    }

    fn serve(folder: tempfile::TempDir) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
        command.args(["local", "--port", "0"]).current_dir(folder.path());
        clean(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let local = Process(child);
        let endpoint = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { folder, endpoint, _local: local }
    }

    /// A path in this world's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The embedded AWS.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A command that sees this world.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path());
        clean(&mut command);
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    /// `redrive`, not yet run.
    pub(crate) fn redrive(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_redrive"));
        command.args(args);
        command
    }

    /// Runs `redrive`.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        output(self.redrive(args))
    }

    /// Runs `redrive`, which must succeed, and reads its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.succeed(args)).unwrap()
    }

    /// Runs `redrive`, which must succeed, and reads its JSON Lines.
    pub(crate) fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        let out = self.succeed(args);
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// Runs `redrive`, which must succeed; its stdout.
    pub(crate) fn succeed(&self, args: &[&str]) -> Vec<u8> {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {} {stderr}", output.status);
        output.stdout
    }

    /// Starts a worker; its log goes to `worker.log`.
    pub(crate) fn worker(&self) -> Process {
        self.start(&["worker"], "worker.log")
    }

    /// Starts `redrive`; its output goes to a file.
    pub(crate) fn start(&self, args: &[&str], log: &str) -> Process {
        self.start_command(self.redrive(args), log)
    }

    /// Starts a command; its output goes to a file.
    pub(crate) fn start_command(&self, mut command: Command, log: &str) -> Process {
        let log = std::fs::File::options().append(true).create(true).open(self.path(log)).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Process(command.spawn().unwrap())
    }

    /// The whole of a file in this world's folder; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Sends one message through AWS's own client.
    pub(crate) fn send(
        &self,
        body: &str,
        attributes: HashMap<String, aws_sdk_sqs::types::MessageAttributeValue>,
    ) {
        self.with_source(async |client, url| {
            let send = client.send_message().queue_url(url).message_body(body);
            send.set_message_attributes(Some(attributes)).send().await.unwrap();
        });
    }

    /// Sends many.
    pub(crate) fn send_many(&self, bodies: impl Iterator<Item = String>) {
        let bodies: Vec<String> = bodies.collect();
        self.with_source(async |client, url| {
            for batch in bodies.chunks(10) {
                let entries = batch.iter().enumerate().map(|(id, body)| {
                    let entry = aws_sdk_sqs::types::SendMessageBatchRequestEntry::builder();
                    entry.id(id.to_string()).message_body(body).build().unwrap()
                });
                let send = client.send_message_batch().queue_url(&url);
                let answer = send.set_entries(Some(entries.collect())).send().await.unwrap();
                assert_eq!(answer.successful.len(), batch.len());
            }
        });
    }

    fn with_source(&self, calls: impl AsyncFnOnce(aws_sdk_sqs::Client, String)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let credentials =
                aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test");
            let config = aws_sdk_sqs::Config::builder()
                .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
                .region(aws_sdk_sqs::config::Region::new("us-east-1"))
                .endpoint_url(&self.endpoint)
                .credentials_provider(credentials)
                .build();
            let client = aws_sdk_sqs::Client::from_conf(config);
            let url = client.get_queue_url().queue_name("hooks").send().await.unwrap();
            let url = url.queue_url().unwrap().to_owned();
            calls(client, url).await;
        });
    }

    /// Adds a line to a section of the configuration.
    pub(crate) fn append_config(&self, section: &str, line: &str) {
        let text = self.read("redrive.toml");
        assert!(text.contains(section));
        let text = text.replacen(section, &format!("{section}\n{line}"), 1);
        std::fs::write(self.path("redrive.toml"), text).unwrap();
    }

    /// Waits until a file is there.
    pub(crate) fn wait_for_file(&self, name: &str) {
        let started = Instant::now();
        while !self.path(name).exists() {
            assert!(started.elapsed() < HANG, "no {name}");
            pause();
        }
    }

    /// Waits until a log says something.
    pub(crate) fn wait_for_log(&self, name: &str, what: &str) {
        let started = Instant::now();
        while !self.read(name).contains(what) {
            assert!(started.elapsed() < HANG, "{name} says no {what}: {}", self.read(name));
            pause();
        }
    }

    /// Waits until the source has nothing visible, in flight or delayed.
    pub(crate) fn wait_for_empty_source(&self) {
        self.wait_for("an empty source", |stats| {
            ["visible", "in_flight", "delayed"].iter().all(|n| stats["source"][n] == 0)
        });
    }

    /// Waits until `stats` says so.
    pub(crate) fn wait_for(&self, what: &str, condition: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        loop {
            let stats = self.json(&["--json", "stats"]);
            if condition(&stats) {
                return;
            }
            let log = self.read("worker.log");
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            assert!(started.elapsed() < HANG, "no {what}: {stats}\n{}", tail.join("\n"));
            pause();
        }
    }
}

/// Runs a command to its end, which must come.
pub(crate) fn output(mut command: Command) -> Output {
    let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let [stdout, stderr] = &files;
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let status = Process(command.spawn().unwrap()).wait();
    let [stdout, stderr] = files.map(|mut file| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    });
    Output { status, stdout, stderr }
}

/// Takes away what this machine's environment would add.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if text.starts_with("AWS_") || text.starts_with("REDRIVE_") {
            command.env_remove(&name);
        }
    }
}

/// A short pause of a wait for another process.
pub(crate) fn pause() {
    std::thread::park_timeout(Duration::from_millis(50));
}

/// A configuration: the queue `hooks` with its own vault and ledger, and `handler` as its command.
/// `source` holds more lines of its section, `extra` more sections.
pub(crate) fn config(handler: &[&str], source: &str, extra: &str) -> String {
    let mut text = String::new();
    let command = serde_json::to_string(handler).unwrap();
    writeln!(text, "[source]\nqueue = \"hooks\"\ndlq = \"hooks-dlq\"\nwait = \"1s\"\n{source}\n")
        .unwrap();
    writeln!(text, "[vault]\nbucket = \"hooks-vault\"\n").unwrap();
    writeln!(text, "[ledger]\ntable = \"hooks-ledger\"\n").unwrap();
    writeln!(text, "[handler]\nkind = \"exec\"\ncommand = {command}\n").unwrap();
    text.push_str(extra);
    text
}

/// A file of this repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
