//! Help, usage and configuration errors as printed, and what `init` writes.
//!
//! `TRYCMD=overwrite cargo test --test it` writes what is printed now into the files in `cmd/`.

use std::process::Command;

#[test]
fn what_is_printed_is_as_documented() {
    trycmd::TestCases::new().case("tests/it/cmd/*.trycmd");
}

#[test]
fn init_writes_the_sample_and_overwrites_only_when_forced() {
    let folder = tempfile::tempdir().unwrap();
    let init = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
        command.args(args).current_dir(folder.path()).output().unwrap()
    };
    let path = folder.path().join("redrive.toml");
    assert_eq!(init(&["init"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), redrive::config::SAMPLE);

    std::fs::write(&path, "mine").unwrap();
    let refused = init(&["init"]);
    assert_eq!(refused.status.code(), Some(64));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(text, "redrive: redrive.toml is already there; --force overwrites it\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");

    assert_eq!(init(&["init", "--force"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), redrive::config::SAMPLE);
    assert_eq!(init(&["--config", "other.toml", "init"]).status.code(), Some(0));
    assert!(folder.path().join("other.toml").exists());
}

#[test]
fn the_sample_is_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redrive.toml");
    std::fs::write(&path, redrive::config::SAMPLE).unwrap();
    let config = redrive::config::Config::load([], Some(&path)).unwrap();
    assert_eq!(config.source.queue.as_str(), "orders");
    assert_eq!(config.vault.bucket.as_str(), "my-vault");
    assert!(config.handler.is_some());
}
