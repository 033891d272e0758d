//! What every file under `src` must keep to: imports go one way, each file says what it is, none is too
//! long, and evidence is made where it is seen.

use std::fs;
use std::path::{Path, PathBuf};

/// A file may be this long, tests included.
const MAX_LINES: usize = 600;

struct File {
    /// Below `src`, with `/`.
    path: String,
    text: String,
}

impl File {
    fn is_in(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| {
            self.path == format!("{folder}.rs") || self.path.starts_with(&format!("{folder}/"))
        })
    }

    /// The lines that are code, with their numbers, up to the tests in the file.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let text = if self.path.ends_with("tests.rs") { "" } else { &self.text };
        text.lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line.trim()))
            .take_while(|(_, line)| *line != "#[cfg(test)]")
            .filter(|(_, line)| !line.starts_with("//"))
    }
}

/// The Rust files below a folder of this repository, in order.
fn files_below(folder: &str) -> Vec<File> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    paths.sort();
    let read = |path: PathBuf| File {
        path: path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"),
        text: fs::read_to_string(&path).unwrap(),
    };
    paths.into_iter().map(read).collect()
}

fn sources() -> Vec<File> {
    files_below("src")
}

/// Fails with all lines of code of the chosen files that hold one of `words`.
fn refuse(rule: &str, files: impl Fn(&File) -> bool, words: &[&str]) {
    let sources = sources();
    let found: Vec<String> = sources
        .iter()
        .filter(|file| files(file))
        .flat_map(|file| {
            file.code()
                .filter(|(_, line)| words.iter().any(|word| holds(line, word)))
                .map(|(number, line)| format!("src/{}:{number}: {line}", file.path))
        })
        .collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// Whether a line has `word` where a word may begin.
fn holds(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn the_domain_is_pure() {
    refuse(
        "domain knows no async, no AWS, no logging, no environment, no clock",
        |file| file.is_in(&["domain"]),
        &[
            "tokio",
            "async ",
            "aws_",
            "tracing",
            "std::env",
            "env!",
            "Instant",
            "SystemTime",
            "Timestamp::now",
            "crate::port",
            "crate::service",
            "crate::config",
            "crate::cli",
            "crate::aws",
            "crate::sim",
            "crate::handler",
            "crate::local",
            "crate::system",
        ],
    );
}

#[test]
fn imports_go_one_way() {
    let above_port = [
        "crate::service",
        "crate::cli",
        "crate::aws",
        "crate::sim",
        "crate::handler",
        "crate::local",
    ];
    refuse("port knows the domain alone", |file| file.is_in(&["port"]), &above_port);
    let adapters = ["crate::aws", "crate::sim", "crate::handler", "crate::local", "crate::cli"];
    refuse("a service knows ports alone", |file| file.is_in(&["service"]), &adapters);
    refuse(
        "an adapter knows ports alone",
        |file| file.is_in(&["aws", "handler"]),
        &["crate::service", "crate::cli", "crate::config", "crate::sim", "crate::local"],
    );
    refuse(
        "telemetry knows who reports to it as little as who reads it",
        |file| file.is_in(&["telemetry"]),
        &above_port,
    );
    refuse(
        "the world in memory knows ports alone",
        |file| file.is_in(&["sim"]),
        &["crate::service", "crate::cli", "crate::config", "crate::aws", "crate::local"],
    );
    refuse(
        "configuration knows the domain alone",
        |file| file.is_in(&["config"]),
        &[&above_port[..], &["crate::port"]].concat(),
    );
    refuse(
        "only main knows the command line",
        |file| !file.is_in(&["cli", "main"]),
        &["crate::cli"],
    );
}

#[test]
fn only_the_adapters_of_aws_import_its_sdks() {
    refuse(
        "SDKs are imported in src/aws alone",
        |file| !file.is_in(&["aws"]),
        &["aws_sdk_", "aws_config::", "aws_smithy_", "aws_types::"],
    );
}

#[test]
fn evidence_is_made_by_adapters_alone() {
    refuse(
        "Stored::witnessed is for those who saw it",
        |file| !file.is_in(&["aws", "sim"]),
        &["Stored::witnessed("],
    );
}

#[test]
fn the_environment_is_read_in_one_place() {
    refuse(
        "settings come from src/config; handlers pass the environment on to processes",
        |file| !file.is_in(&["config", "handler"]),
        &["env::var", "env::vars"],
    );
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    for File { path, text } in sources() {
        assert!(text.starts_with("//! "), "src/{path} does not begin with what it is");
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "src/{path} has {lines} lines; {MAX_LINES} is the stop");
        if path == "main.rs" {
            assert!(lines <= 60, "main.rs picks the command and no more");
        }
    }
}

/// Fails with all lines of some files that hold one of `words`, comments and tests included.
fn refuse_anywhere(rule: &str, files: &[File], words: &[&str]) {
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| file.text.lines().map(move |line| format!("{}: {line}", file.path)))
        .filter(|line| words.iter().any(|word| line.contains(word)))
        .collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn nothing_is_put_off_and_no_lint_is_silenced() {
    // Written so that this file does not find itself.
    let put_off = ["TO\u{44}O", "FIXM\u{45}", "XX\u{58}", "todo\u{21}", "#[ignor\u{65}"];
    let silenced = ["#[allo\u{77}(", "#![allo\u{77}("];
    for folder in ["src", "tests"] {
        let files = files_below(folder);
        refuse_anywhere("nothing is put off", &files, &put_off);
        refuse_anywhere("a lint is expected with a reason, not silenced", &files, &silenced);
    }
}

#[test]
fn no_test_sleeps() {
    let sleeps = ["thread::slee\u{70}", "time::slee\u{70}"];
    refuse_anywhere("a test waits for a condition", &files_below("tests"), &sleeps);
}
