//! The README's tour, as a reader would type it.

use crate::harness::{World, output, repository};

/// The commands of the section "Five minutes", without the one that serves the embedded AWS.
fn tour() -> Vec<String> {
    let readme = std::fs::read_to_string(repository("README.md")).unwrap();
    let (_, section) = readme.split_once("## Five minutes").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let commands = section.lines().filter_map(|line| line.strip_prefix("$ "));
    commands.filter(|command| *command != "redrive local").map(str::to_owned).collect()
}

#[test]
fn the_tour_of_the_readme_does_what_it_says() {
    let world = World::bare();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_redrive"));
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(binary.parent().unwrap().to_owned());
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap();
    let commands = tour();
    assert!(commands.len() >= 12, "{commands:?}");
    let script = commands.join("\n").replace("http://127.0.0.1:4566", world.endpoint());
    let mut bash = world.command("bash");
    bash.args(["-euc", &script]).env("PATH", path);
    let output = output(bash);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {stdout} {stderr}", output.status);
    for said in [
        "AMOUNT_FORMAT",
        r#""body": "{\"amount\":\"1,50\"}""#,
        "1 records, at least",
        "balanced",
        "nothing to do",
    ] {
        assert!(stdout.contains(said), "{said:?} is missing: {stdout} {stderr}");
    }
}
